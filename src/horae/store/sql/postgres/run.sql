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
