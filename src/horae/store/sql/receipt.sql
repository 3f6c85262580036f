-- name: one
-- One receipt.
SELECT * FROM filed WHERE number = :number;

-- name: by_key
-- The one receipt that a key has.
SELECT * FROM filed WHERE entry = :entry AND key = :key;

-- name: standing
-- Where a receipt stands, and will until we have moved it.
SELECT number, entry, status, attempts FROM receipt WHERE number = :number FOR NO KEY UPDATE;

-- name: standing_of_run
-- Where the receipt of a run stands that has not ended, and will until we have moved it.
SELECT receipt.number, entry, status, attempts
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.number = :number AND run.ended_at IS NULL
FOR NO KEY UPDATE OF receipt, run;

-- name: taken
-- Which of some keys have their receipts; each is given with its entry.
SELECT entry, receipt.key FROM json_each(:keys) AS wanted CROSS JOIN receipt
ON entry = json_extract(wanted.value, '$[0]') AND receipt.key = json_extract(wanted.value, '$[1]');

-- name: numbers
-- The last number that was given to a receipt; those that follow are given by taking them.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'receipt';

-- name: insert
-- File a receipt.
INSERT INTO receipt (
  number, entry, key, status, reason, reason_code, planned_at, through_at, count, start_at,
  decided_at, file, line, digest, policy, work, agents, parent, commit_id, actor, note)
VALUES (
  :number, :entry, :key, :status, :reason, :reason_code, :planned_at, :through_at, :count,
  :start_at, :now, :file, :line, :digest, :policy, :work, :agents, :parent, :commit, :actor,
  :note);

-- name: move
-- Change where a receipt stands, if it still stands where it was seen. While it waits, or is held,
-- no machine has it. What moves was not final, so it was not settled.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code,
  start_at = coalesce(:start_at, receipt.start_at),
  attempts = :attempts, deaths = deaths + :died, ended_at = :ended_at,
  settled_at = CAST(:settled_at AS BIGINT),
  machine = CASE WHEN :has_machine = 1 THEN machine END,
  account = CAST(:account AS TEXT)
WHERE receipt.number = :number AND receipt.status = :was;

-- name: late
-- What ran, was planned in a period, and was decided later than it should have been.
SELECT * FROM filed
WHERE planned_at BETWEEN :since AND :until AND decided_at - planned_at > :by
  AND ended_at IS NOT NULL
ORDER BY number DESC LIMIT :limit;

-- name: pending_of_entry
-- What would still start of an entry; said so that the small index of what is open is used.
SELECT * FROM filed
WHERE entry = :entry
  AND (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND status IN ('waiting', 'held')
ORDER BY +number;

-- name: has_open
-- Whether an entry has a receipt that is not final.
SELECT 1 FROM receipt
WHERE entry = :entry
  AND (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running') LIMIT 1;

-- name: open
-- What is not final; said so that the small index of it is used.
SELECT * FROM filed
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND entry > 0
ORDER BY +number;

-- name: settle
-- Note that all that follows from a final receipt is done.
UPDATE receipt SET settled_at = :now
WHERE receipt.number = :number AND settled_at IS NULL
  AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');

-- name: unsettled
-- Final receipts from which something may still have to follow.
SELECT * FROM filed
WHERE settled_at IS NULL
  AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND number > :after
ORDER BY number LIMIT :limit;

-- name: page
-- Receipts, newest first, by window and status.
SELECT * FROM filed
WHERE coalesce(through_at, planned_at) >= :since AND +planned_at <= :until AND number < :cursor
  AND instr(:statuses, status) > 0
ORDER BY number DESC LIMIT :limit;

-- name: page_of_entry
-- Receipts of one entry, newest first, by window and status.
SELECT * FROM filed
WHERE entry = :entry
  AND coalesce(through_at, planned_at) >= :since AND +planned_at <= :until AND number < :cursor
  AND instr(:statuses, status) > 0
ORDER BY number DESC LIMIT :limit;

-- name: page_open
-- Receipts that are not final, newest first; said so that the small index of them is used.
SELECT * FROM filed
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND entry > 0
  AND coalesce(through_at, planned_at) >= :since AND +planned_at <= :until AND +number < :cursor
  AND instr(:statuses, status) > 0
ORDER BY +number DESC LIMIT :limit;

-- name: count_open
-- How many receipts are not final, by status; said so that the small index of them is used.
SELECT status, count(*) FROM receipt
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND entry > 0
GROUP BY status;

-- name: give_up_keys
-- Let what was decided without a run about moments that come again give its key up. The plus
-- says that few receipts are planned for later, however many entries there are.
UPDATE receipt SET key = key || ':void:' || number
WHERE planned_at > :now AND status IN ('skipped', 'coalesced', 'missed')
  AND (key LIKE 'cron:%' OR key LIKE 'at:%' OR key LIKE 'tick:%') AND key NOT LIKE '%:void:%'
  AND +entry IN (SELECT number FROM entry WHERE accounted_to > :now);

-- name: outcomes
-- How many scheduled times of a period came to what, by lane and by parts that are equally long.
SELECT (planned_at - :since) / :step AS part, status, CAST(sum(count) AS BIGINT) AS times,
  CASE :lane WHEN 'entry' THEN CAST(entry AS TEXT) WHEN 'file' THEN file WHEN 'agent' THEN agents
    ELSE '' END AS lane,
  min(planned_at) AS first_at, max(coalesce(through_at, planned_at)) AS last_at,
  max(number) AS number
FROM receipt
WHERE planned_at >= :since AND planned_at < :until AND reason_code <> 'entry_broken'
  AND instr(:statuses, status) > 0
  AND (:is_every = 1 OR entry IN (SELECT value FROM json_each(:numbers)))
GROUP BY part, status, lane;

-- name: first_entries
-- The entries that have receipts in a period, those first that had one first.
SELECT entry FROM receipt
WHERE planned_at >= :since AND planned_at < :until AND reason_code <> 'entry_broken'
  AND instr(:statuses, status) > 0
  AND (:is_every = 1 OR entry IN (SELECT value FROM json_each(:numbers)))
GROUP BY entry ORDER BY min(planned_at), entry LIMIT :limit;

-- name: spans
-- The last receipts of a period, each with its runs that were let go.
SELECT receipt.number, receipt.entry, entry.title, receipt.file, receipt.agents, receipt.parent,
  receipt.status, receipt.reason, receipt.reason_code, receipt.planned_at, receipt.through_at,
  receipt.start_at, receipt.decided_at, run.number AS run, run.started_at, run.ended_at AS over_at,
  run.outcome, run.member
FROM receipt JOIN entry ON entry.number = receipt.entry
LEFT JOIN run ON run.receipt = receipt.number AND (run.outcome IS NOT NULL OR run.ended_at IS NULL)
WHERE planned_at >= :since AND planned_at < :until AND receipt.reason_code <> 'entry_broken'
  AND instr(:statuses, status) > 0
  AND (:is_every = 1 OR receipt.entry IN (SELECT value FROM json_each(:numbers)))
ORDER BY planned_at DESC, receipt.number DESC, run.number DESC LIMIT :limit;
