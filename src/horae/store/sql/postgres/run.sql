-- name: identify_many
-- Note which processes runs are.
UPDATE run SET pid = new.pid, pid_started = new.pid_started
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, pid bigint, pid_started bigint)
WHERE run.number = new.number;

-- name: insert_many
-- Begin attempts that have their numbers.
INSERT INTO run (number, receipt, attempt, started_at, member, generation)
SELECT number, receipt, attempt, now, member, generation
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, receipt bigint, attempt bigint, now bigint, member text, generation bigint);

-- name: close_many
-- End runs; without an outcome one was given back.
UPDATE run SET
  ended_at = new.now, outcome = new.outcome, exit_code = new.exit_code, reason = new.reason,
  reason_code = new.reason_code, facts = new.facts
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, outcome text, exit_code bigint, reason text, reason_code text, facts text,
  now bigint)
WHERE run.number = new.number;

-- name: open_of
-- The runs of some receipts that have not ended.
SELECT * FROM run
WHERE ended_at IS NULL
  AND receipt IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));
