-- name: receipt_insert
-- File receipts of entries that differ in nothing else; their numbers follow the first.
INSERT INTO receipt (
  number, entry, key, status, reason, reason_code, planned_at, through_at, count, start_at,
  decided_at, file, line, digest, policy, work, agents, parent, commit_id, actor, note)
SELECT :number + each.key, entry.number, :key, :status, :reason, :reason_code, :planned_at,
  :through_at, :count, :start_at, :now, entry.file, entry.line, entry.digest, :policy, :work,
  :agents, :parent, entry.commit_id, :actor, :note
FROM json_each(:entries) AS each CROSS JOIN entry ON entry.number = each.value;

-- name: receipt_move
-- Change where several receipts stand that stood alike.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code,
  start_at = coalesce(:start_at, start_at),
  attempts = :attempts, deaths = deaths + :died, ended_at = :ended_at,
  settled_at = CAST(:settled_at AS BIGINT),
  machine = CASE WHEN :has_machine = 1 THEN machine END
WHERE number IN (SELECT value FROM json_each(:numbers)) AND status = :was;

-- name: event_insert
-- Write down that receipts of several entries were filed; their numbers follow the first.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT :now, 'receipt', value, :number + key, :facts, :actor FROM json_each(:entries);

-- name: run_close
-- End several runs that ended alike.
UPDATE run SET
  ended_at = :now, outcome = :outcome, exit_code = :exit_code, reason = :reason,
  reason_code = :reason_code, facts = :facts
WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: entry_account_planned
-- Move the watermarks of entries that may fire and do not count from an end.
UPDATE entry SET accounted_to = :accounted_to, next_at = :next_at
WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: entry_over_as_planned
-- Remember the ends of several runs that went alike.
UPDATE entry SET
  ended_at = :ended_at, streak = :streak, failures = :failures,
  memory = coalesce(:memory, memory)
WHERE number IN (SELECT value FROM json_each(:numbers));
