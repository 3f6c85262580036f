-- name: identify_many
-- Note which processes runs are.
UPDATE run SET pid = new.pid, pid_started = new.pid_started
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, pid bigint, pid_started bigint)
WHERE run.number = new.number;

-- name: next
-- The number and the attempt of the run that a receipt has next; nobody else is given them.
SELECT nextval('run_number_seq') AS run, coalesce(max(attempt), 0) + 1 AS attempt
FROM run WHERE receipt = :receipt;

-- name: next_many
-- The numbers and the attempts of the runs that some receipts have next.
SELECT nextval('run_number_seq') AS run,
  coalesce((SELECT max(attempt) FROM run WHERE run.receipt = wanted.receipt), 0) + 1 AS attempt,
  wanted.place
FROM ROWS FROM (json_to_recordset(CAST(:rows AS json)) AS (receipt bigint))
  WITH ORDINALITY AS wanted (receipt, place)
ORDER BY wanted.place;

-- name: insert
-- Begin an attempt that has its number.
INSERT INTO run (number, receipt, attempt, started_at, member, generation)
VALUES (:number, :receipt, :attempt, :now, :member, :generation);

-- name: insert_many
-- Begin attempts that have their numbers.
INSERT INTO run (number, receipt, attempt, started_at, member, generation)
SELECT number, receipt, attempt, now, member, generation
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, receipt bigint, attempt bigint, now bigint, member text, generation bigint);

-- name: close_many
-- End runs; without an outcome they were given back.
UPDATE run SET
  ended_at = new.now, outcome = new.outcome, exit_code = new.exit_code, reason = new.reason,
  reason_code = new.reason_code, facts = new.facts
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, now bigint, outcome text, exit_code bigint, reason text,
  reason_code text, facts text)
WHERE run.number = new.number;
