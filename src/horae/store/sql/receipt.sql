-- name: one
-- One receipt.
SELECT * FROM receipt WHERE number = :number;

-- name: by_key
-- The one receipt that a key has.
SELECT * FROM receipt WHERE entry = :entry AND key = :key;

-- name: insert
-- File a receipt unless its key has one.
INSERT INTO receipt (
  entry, key, status, reason, planned_at, through_at, count, start_at, decided_at, file, line,
  digest, policy, commit_id)
VALUES (
  :entry, :key, :status, :reason, :planned_at, :through_at, :count, :start_at, :now, :file, :line,
  :digest, :policy, (SELECT commit_id FROM entry WHERE number = :entry))
ON CONFLICT (entry, key) DO NOTHING
RETURNING number, commit_id;

-- name: move
-- Change where a receipt stands, if it still stands where it was seen.
UPDATE receipt SET
  status = :status, reason = :reason, start_at = coalesce(:start_at, start_at),
  attempts = :attempts, ended_at = :ended_at
WHERE number = :number AND status = :was;

-- name: pending_of_entry
-- What would still start of an entry.
SELECT * FROM receipt WHERE entry = :entry AND status IN ('waiting', 'held') ORDER BY number;

-- name: open
-- What is not final.
SELECT * FROM receipt WHERE status IN ('waiting', 'held', 'starting', 'running') ORDER BY number;

-- name: settle
-- Note that all that follows from a final receipt is done.
UPDATE receipt SET settled_at = :now
WHERE number = :number AND settled_at IS NULL
  AND status NOT IN ('waiting', 'held', 'starting', 'running');

-- name: unsettled
-- Final receipts from which something may still have to follow.
SELECT * FROM receipt
WHERE settled_at IS NULL AND status NOT IN ('waiting', 'held', 'starting', 'running')
ORDER BY number LIMIT :limit;

-- name: page
-- Receipts, newest first, by window and status.
SELECT * FROM receipt
WHERE (:since IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (:until IS NULL OR planned_at <= :until)
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:cursor IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;

-- name: page_of_entry
-- Receipts of one entry, newest first, by window and status.
SELECT * FROM receipt
WHERE entry = :entry
  AND (:since IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (:until IS NULL OR planned_at <= :until)
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:cursor IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;

-- name: page_open
-- Receipts that are not final, newest first; said so that the small index of them is used.
SELECT * FROM receipt
WHERE status IN ('waiting', 'held', 'starting', 'running')
  AND status IN (SELECT value FROM json_each(:statuses))
  AND (:since IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (:until IS NULL OR planned_at <= :until)
  AND (:cursor IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;
