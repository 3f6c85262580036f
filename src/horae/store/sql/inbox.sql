-- name: bad
-- The newest result of each entry that may run if it is a bad one, since when the results are bad,
-- and how many those are. What a user cancelled is no result.
SELECT filed.*, bad.since_at, bad.times FROM (
  SELECT entry.number, max(receipt.number) AS newest, min(planned_at) AS since_at,
    CAST(sum(count) AS BIGINT) AS times
  FROM (
    SELECT number, coalesce((
      SELECT receipt.number FROM receipt WHERE receipt.entry = known.number
        AND (status = 'done' OR status = 'no_work') ORDER BY receipt.number DESC LIMIT 1), 0) AS good
    FROM entry AS known WHERE gone_at IS NULL AND paused_at IS NULL) AS entry
  JOIN receipt ON receipt.entry = entry.number AND receipt.number > entry.good
    AND (status = 'failed' OR status = 'killed' OR status = 'interrupted' OR status = 'missed'
      OR status = 'skipped' AND (reason_code = 'budget' OR reason_code = 'approval_expired'))
    AND reason_code <> 'cancelled'
  GROUP BY entry.number) AS bad
JOIN filed ON filed.number = bad.newest
ORDER BY filed.number DESC;

-- name: acknowledged
-- What users have acknowledged, of entries that are there.
SELECT acknowledgement.* FROM acknowledgement
JOIN entry ON entry.number = acknowledgement.entry WHERE gone_at IS NULL;

-- name: acknowledge
-- Write down that a user knows what is wrong with an entry.
INSERT INTO acknowledgement (entry, state, since_at, at, until_at, note, actor)
VALUES (:entry, :state, :since_at, :now, :until_at, :note, :actor)
ON CONFLICT (entry) DO UPDATE SET
  state = excluded.state, since_at = excluded.since_at, at = excluded.at,
  until_at = excluded.until_at, note = excluded.note, actor = excluded.actor;

-- name: forget
-- Take an acknowledgement back.
DELETE FROM acknowledgement WHERE entry = :entry;
