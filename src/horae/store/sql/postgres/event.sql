-- name: insert_many
-- Write down what happened, in order.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS new (
  at bigint, kind text, entry bigint, receipt bigint, facts text, actor text);
