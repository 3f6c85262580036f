-- name: identify_many
-- Note which processes runs are.
UPDATE run SET pid = new.pid, pid_started = new.pid_started
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, pid bigint, pid_started bigint)
WHERE run.number = new.number;
