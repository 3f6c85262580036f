-- name: standing
-- Where a receipt stands, and will until we have moved it.
SELECT number, entry, status, attempts, machine, settled_at FROM receipt
WHERE number = :number FOR NO KEY UPDATE;

-- name: standing_of_run
-- Where the receipt of a run stands that has not ended, and will until we have moved it.
SELECT receipt.number, entry, status, attempts, machine, settled_at
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.number = :number AND run.ended_at IS NULL
FOR NO KEY UPDATE OF receipt, run;

-- name: several
-- Some receipts.
SELECT * FROM filed
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY number;

-- name: taken
-- Which of some keys have their receipts; each is given with its entry.
SELECT receipt.entry, receipt.key
FROM jsonb_array_elements(CAST(:keys AS jsonb)) AS wanted (value)
JOIN receipt ON receipt.entry = CAST(wanted.value ->> 0 AS bigint)
  AND receipt.key = wanted.value ->> 1;

-- name: numbers
-- Give the next numbers to receipts; return the last that was given before.
UPDATE counter SET last = last + :count WHERE name = 'receipt' RETURNING last - :count;

-- name: insert_many
-- File receipts.
INSERT INTO receipt (
  number, entry, key, status, reason, reason_code, planned_at, through_at, count, start_at,
  decided_at, file, line, digest, policy, work, agents, parent, commit_id, actor, note)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, entry bigint, key text, status text, reason text, reason_code text,
  planned_at bigint, through_at bigint, count bigint, start_at bigint, now bigint, file text, line bigint,
  digest text, policy text, work text, agents text, parent bigint, commit text,
  actor text, note text);

-- name: settle_many
-- Note that all that follows from final receipts is done.
UPDATE receipt SET settled_at = new.now
FROM json_to_recordset(CAST(:rows AS json)) AS new (number bigint, now bigint)
WHERE receipt.number = new.number AND settled_at IS NULL
  AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');

-- name: page
-- Receipts, newest first, by window and status.
SELECT * FROM filed
WHERE (CAST(:since AS bigint) IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (CAST(:until AS bigint) IS NULL OR planned_at <= :until)
  AND (CAST(:statuses AS text) IS NULL
    OR status IN (SELECT jsonb_array_elements_text(CAST(:statuses AS jsonb))))
  AND (CAST(:cursor AS bigint) IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;

-- name: page_of_entry
-- Receipts of one entry, newest first, by window and status.
SELECT * FROM filed
WHERE entry = :entry
  AND (CAST(:since AS bigint) IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (CAST(:until AS bigint) IS NULL OR planned_at <= :until)
  AND (CAST(:statuses AS text) IS NULL
    OR status IN (SELECT jsonb_array_elements_text(CAST(:statuses AS jsonb))))
  AND (CAST(:cursor AS bigint) IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;

-- name: page_open
-- Receipts that are not final, newest first; said so that the small index of them is used.
SELECT * FROM filed
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND status IN (SELECT jsonb_array_elements_text(CAST(:statuses AS jsonb)))
  AND (CAST(:since AS bigint) IS NULL OR coalesce(through_at, planned_at) >= :since)
  AND (CAST(:until AS bigint) IS NULL OR planned_at <= :until)
  AND (CAST(:cursor AS bigint) IS NULL OR number < :cursor)
ORDER BY number DESC LIMIT :limit;

-- name: move_many
-- Change where receipts stand, if they still stand where they were seen.
UPDATE receipt SET
  status = new.status, reason = new.reason, reason_code = new.reason_code,
  start_at = coalesce(new.start_at, receipt.start_at),
  attempts = new.attempts, deaths = receipt.deaths + new.died, ended_at = new.ended_at,
  settled_at = new.settled_at,
  machine = CASE WHEN new.has_machine = 1 THEN receipt.machine END
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, was text, status text, reason text, reason_code text, start_at bigint,
  attempts bigint, died bigint, ended_at bigint, settled_at bigint, has_machine bigint)
WHERE receipt.number = new.number AND receipt.status = new.was;
