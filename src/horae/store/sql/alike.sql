-- name: receipt_insert
-- File receipts of entries that differ in nothing else; their numbers follow the first.
INSERT INTO receipt (
  number, entry, key, status, reason, reason_code, planned_at, through_at, count, start_at,
  decided_at, file, line, digest, policy, work, agents, parent, commit_id, actor, note)
SELECT :number + each.key, entry.number, :key, :status, :reason, :reason_code, :planned_at,
  :through_at, :count, :start_at, :now, entry.file, entry.line, entry.digest, :policy, :work,
  :agents, :parent, entry.commit_id, :actor, :note
FROM json_each(:entries) AS each CROSS JOIN entry ON entry.number = each.value;

-- name: event_insert
-- Write down that receipts of several entries were filed; their numbers follow the first.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT :now, 'receipt', value, :number + key, :facts, :actor FROM json_each(:entries);
