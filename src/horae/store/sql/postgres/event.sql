-- name: insert_many
-- Write down what happened, in order.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS new (
  at bigint, kind text, entry bigint, receipt bigint, facts text, actor text);

-- name: insert_new
-- Write down which entries are new, in order.
INSERT INTO event (at, kind, entry, facts, actor)
SELECT first_seen_at, 'entry_new', number, CAST(
  json_build_object('address', address, 'rule', rule, 'title', title) AS text), :actor
FROM entry WHERE number BETWEEN :first AND :last ORDER BY number;
