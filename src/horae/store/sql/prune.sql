-- name: foldable
-- Old receipts of one entry that can be one: same status, asked for in the same way, by the same
-- actor and with the same note.
-- Only keys that cannot come a second time are forgotten: a delay is due as long as its key has no
-- receipt, and a webhook, an Idempotency-Key, an issue or a named backfill may come again.
SELECT min(number) AS number, entry, status, actor, note, substr(key, 1, instr(key, ':')) AS kind,
  count(*) AS members, CAST(sum(count) AS BIGINT) AS count,
  min(planned_at) AS planned_at, max(coalesce(through_at, planned_at)) AS through_at
FROM receipt
WHERE decided_at < :before AND settled_at IS NOT NULL
  AND substr(key, 1, instr(key, ':')) IN ('cron:', 'at:', 'tick:', 'dispatch:', 'manual:', 'after:')
GROUP BY entry, status, actor, note, kind HAVING count(*) > 1;

-- name: drop_folded
-- Remove the receipts that another one now stands for.
DELETE FROM receipt
WHERE entry = :entry AND status = :status AND actor = :actor AND note = :note
  AND substr(key, 1, instr(key, ':')) = :kind
  AND decided_at < :before AND settled_at IS NOT NULL AND number <> :number;

-- name: widen
-- Let one receipt stand for all of them.
UPDATE receipt SET planned_at = :planned_at, through_at = :through_at, count = :count
WHERE number = :number;

-- name: count_runs
-- How many runs there are.
SELECT count(*) FROM run;

-- name: drop_runs
-- Remove old runs whose receipts are settled.
DELETE FROM run
WHERE ended_at < :before
  AND receipt IN (SELECT number FROM receipt WHERE settled_at IS NOT NULL);

-- name: drop_events
-- Remove old events.
DELETE FROM event WHERE at < :before;

-- name: drop_texts
-- Remove old texts that neither an entry nor a receipt that may still run carries.
DELETE FROM text
WHERE kept_at < :before
  AND digest NOT IN (SELECT digest FROM entry WHERE gone_at IS NULL)
  AND digest NOT IN (SELECT digest FROM receipt WHERE decided_at >= :before OR settled_at IS NULL);
