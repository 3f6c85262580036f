-- name: all
-- Every entry there ever was.
SELECT * FROM entry ORDER BY number;

-- name: one
-- One entry.
SELECT * FROM entry WHERE number = :number;

-- name: at_numbers
-- Some entries.
SELECT * FROM entry WHERE number IN (SELECT value FROM json_each(:numbers)) ORDER BY number;

-- name: summaries
-- What a list of all entries is filtered and sorted by, with the newest receipt of each that is
-- running or final; that of an edit which cannot be read is about no scheduled time.
SELECT entry.number, entry.source, address, title, entry.file, entry.line,
  unarmed IS NOT NULL AS is_unarmed, paused_at IS NOT NULL AS is_paused,
  gone_at IS NOT NULL AS is_gone, broken IS NOT NULL AS is_broken, failures, next_at,
  receipt.planned_at AS last_at, receipt.status AS last_status
FROM entry LEFT JOIN receipt ON receipt.number = (
  SELECT number FROM receipt
  WHERE receipt.entry = entry.number AND status <> 'waiting' AND status <> 'held'
    AND reason_code <> 'entry_broken'
  ORDER BY number DESC LIMIT 1)
WHERE gone_at IS NULL OR :with_gone = 1;

-- name: by_address
-- Entries by their address.
SELECT * FROM entry WHERE address = :word ORDER BY gone_at IS NOT NULL, number;

-- name: by_title
-- Entries by their title.
SELECT * FROM entry WHERE title = :word ORDER BY gone_at IS NOT NULL, number;

-- name: by_place
-- Entries by where they stand.
SELECT * FROM entry WHERE file = :file AND line = :line ORDER BY gone_at IS NOT NULL, number;

-- name: followers
-- What is armed and follows others; said so that the small index of them is used.
SELECT * FROM entry
WHERE instr(spec, '"rule":{"kind":"after"') > 0 AND gone_at IS NULL AND paused_at IS NULL
ORDER BY number;

-- name: files
-- The files in which a source has entries, each found from the one before it.
WITH RECURSIVE found (file) AS (
  SELECT min(file) FROM entry WHERE source = :source AND gone_at IS NULL
  UNION ALL
  SELECT (SELECT min(file) FROM entry
    WHERE source = :source AND gone_at IS NULL AND file > found.file)
  FROM found WHERE found.file IS NOT NULL)
SELECT file FROM found WHERE file IS NOT NULL;

-- name: one_of_source
-- Something of a source that is not gone, if there is anything.
SELECT number FROM entry WHERE source = :source AND gone_at IS NULL LIMIT 1;

-- name: loose
-- The files with entries of which no commit is known; said so that the small index is used.
SELECT DISTINCT file FROM entry
WHERE source = :source AND commit_id IS NULL AND gone_at IS NULL AND missing_at IS NULL;

-- name: commit_file
-- Note the commit of the entries in a file of which none is known; of one that is missing the
-- text no longer stands there.
UPDATE entry SET commit_id = :commit_id
WHERE entry.source = :source AND entry.file = :file AND entry.commit_id IS NULL
  AND gone_at IS NULL AND missing_at IS NULL;

-- name: present
-- All that is there of a source.
SELECT * FROM entry WHERE source = :source AND gone_at IS NULL;

-- name: in_files
-- What is there in some files of a source.
SELECT * FROM entry
WHERE source = :source AND file IN (SELECT value FROM json_each(:files)) AND gone_at IS NULL;

-- name: at_addresses
-- What stands, or stood when it was last seen, at some addresses of a source.
SELECT * FROM entry
WHERE source = :source AND address IN (SELECT value FROM json_each(:addresses));

-- name: missing
-- What the last scans of a source have missed.
SELECT * FROM entry WHERE source = :source AND missing_at IS NOT NULL;

-- name: due
-- What is armed and has come due, the earliest first, and whether a receipt of a moment of its
-- own is open: a request beside the plan keeps no entry from its time. What the
-- last scan missed waits until it is seen again, or gone.
SELECT spec, address, file, line, title, digest, number, accounted_to, ended_at,
  ticks, streak, failures, EXISTS (
  SELECT 1 FROM receipt
  WHERE entry = entry.number
    AND (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
    AND substr(key, 1, instr(key, ':')) IN ('cron:', 'at:', 'delay:', 'tick:')) AS is_busy
FROM entry WHERE next_at <= :now AND missing_at IS NULL ORDER BY next_at, number LIMIT :limit;

-- name: coming
-- What is armed and has a next moment, the earliest first.
SELECT * FROM entry WHERE next_at IS NOT NULL ORDER BY next_at, number LIMIT :limit;

-- name: counts
-- How many may fire, and how many were due before a moment; what has a next moment may.
-- The parts of a recurring task (`:work` and `:back`, both of five letters) are not counted.
SELECT
  (SELECT count(*) FROM entry
   WHERE (next_at IS NOT NULL OR gone_at IS NULL AND paused_at IS NULL AND unarmed IS NULL)
     AND NOT (source = 'board' AND EXISTS (
       SELECT 1 FROM entry AS whole
       WHERE whole.source = 'board' AND whole.gone_at IS NULL
         AND whole.address = substr(entry.address, 1, length(entry.address) - 5)))) AS armed,
  (SELECT count(*) FROM entry WHERE next_at < :due_before) AS overdue;

-- name: that_are_agent
-- The first agents that tick; said so that the small index of them is used.
SELECT * FROM entry WHERE instr(spec, '"work":"tick"') > 0 AND gone_at IS NULL
ORDER BY number LIMIT :limit;

-- name: that_are_paused
-- The first that rest.
SELECT * FROM entry WHERE paused_at IS NOT NULL AND gone_at IS NULL
ORDER BY number LIMIT :limit;

-- name: that_are_unarmed
-- The first that are there and cannot fire.
SELECT * FROM entry WHERE unarmed IS NOT NULL AND gone_at IS NULL
ORDER BY number LIMIT :limit;

-- name: that_are_failing
-- The first that ended badly three times in a row, or more often.
SELECT * FROM entry WHERE failures >= 3 AND gone_at IS NULL
ORDER BY number LIMIT :limit;

-- name: that_are_broken
-- The first whose text cannot be read: those first whose last good text is kept.
SELECT * FROM entry WHERE broken IS NOT NULL AND gone_at IS NULL
ORDER BY broken_at IS NULL, number LIMIT :limit;

-- name: that_are_missing
-- The first that the last scans have missed.
SELECT * FROM entry WHERE missing_at IS NOT NULL AND gone_at IS NULL
ORDER BY +number LIMIT :limit;

-- name: wake_at
-- When the next moment of all comes, when the next pause ends, and when what was held until a
-- budget has room may be tried again.
SELECT
  (SELECT next_at FROM entry WHERE next_at IS NOT NULL AND missing_at IS NULL
   ORDER BY next_at LIMIT 1),
  (SELECT min(paused_until) FROM entry WHERE paused_until IS NOT NULL AND gone_at IS NULL),
  (SELECT min(start_at) FROM receipt WHERE status = 'held' AND reason_code = 'budget');

-- name: rested
-- What has rested as long as it should.
SELECT number FROM entry WHERE paused_until <= :now AND gone_at IS NULL
ORDER BY paused_until, number;

-- name: ahead
-- What goes by a clock that ran ahead of this one; what is gone, too, as it may come back.
SELECT * FROM entry
WHERE max(accounted_to, coalesce(ended_at, accounted_to)) > :now
ORDER BY +number;

-- name: numbers
-- The last number that was given to an entry; those that follow are given by taking them.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry';

-- name: insert
-- Take in a new entry.
INSERT INTO entry (
  number, source, address, title, file, line, rule, body, digest, commit_id, spec, unarmed,
  broken, accounted_to, ended_at, next_at, ticks, streak, failures, first_seen_at)
VALUES (
  :number, :source, :address, :title, :file, :line, :rule, :body, :digest, :commit_id, :spec,
  :unarmed, :broken, :accounted_to, :ended_at, :next_at, :ticks, :streak, :failures, :now);

-- name: update
-- Write down where an entry stands now and what it is; it is there, so it is not gone.
UPDATE entry SET
  address = :address, title = :title, file = :file, line = :line, rule = :rule, body = :body,
  digest = :digest, commit_id = :commit_id, spec = :spec, unarmed = :unarmed,
  broken = :broken, broken_at = CAST(:broken_at AS BIGINT), missing_at = NULL, gone_at = NULL, next_at = CASE WHEN paused_at IS NULL THEN CAST(:next_at AS BIGINT) END
WHERE number = :number;

-- name: account
-- Move the watermark, whatever it was.
UPDATE entry SET
  accounted_to = :accounted_to, ended_at = :ended_at,
  next_at = CASE WHEN spec IS NOT NULL AND gone_at IS NULL AND paused_at IS NULL
    THEN CAST(:next_at AS BIGINT) END
WHERE number = :number;

-- name: standing
-- Where some entries stand, whether they may fire, and what their receipts are to carry. No run
-- of theirs ends on another node meanwhile.
SELECT number, accounted_to, ended_at, commit_id, source,
  spec IS NOT NULL AND gone_at IS NULL AND missing_at IS NULL AND paused_at IS NULL AS is_armed,
  file, line, digest
FROM entry WHERE number IN (SELECT value FROM json_each(:numbers))
ORDER BY number FOR NO KEY UPDATE;

-- name: account_armed
-- Move the watermark of an entry that may fire.
UPDATE entry SET accounted_to = :accounted_to, ended_at = :ended_at, next_at = :next_at
WHERE entry.number = :number;

-- name: tick
-- Count ticks.
UPDATE entry SET ticks = ticks + :ticks WHERE number = :number;

-- name: over
-- Remember the end of a run: from when the next moment counts, and how it went.
UPDATE entry SET
  ended_at = :ended_at, streak = :streak, failures = :failures,
  memory = coalesce(:memory, memory),
  next_at = CASE WHEN spec IS NOT NULL AND gone_at IS NULL AND paused_at IS NULL
    THEN CAST(:next_at AS BIGINT) END
WHERE number = :number;

-- name: over_as_planned
-- Remember the end of a run that changes nothing about the next moment.
UPDATE entry SET
  ended_at = :ended_at, streak = :streak, failures = :failures,
  memory = coalesce(:memory, entry.memory)
WHERE entry.number = :number;

-- name: remember
-- What the entry's next run is to know.
UPDATE entry SET memory = :memory WHERE number = :number;

-- name: miss
-- Note since when scans miss an entry.
UPDATE entry SET missing_at = :now WHERE number = :number;

-- name: unmiss
-- Note that an entry is not missing after all.
UPDATE entry SET missing_at = NULL WHERE entry.number = :number;

-- name: gone
-- Note that an entry is no longer where it was.
UPDATE entry SET gone_at = :now, missing_at = NULL, next_at = NULL WHERE number = :number;

-- name: pause
-- Let an entry rest if it is there and does not rest yet.
UPDATE entry SET paused_at = :now, paused_until = :until, pause_note = :note,
  paused_by = :by, next_at = NULL
WHERE number = :number AND paused_at IS NULL AND gone_at IS NULL;

-- name: pause_set_back
-- Let a pause that began by a clock which ran ahead begin now: what comes again is within it.
UPDATE entry SET paused_at = :now WHERE paused_at > :now;

-- name: resume
-- End an entry's rest; how often it failed before counts no more.
UPDATE entry SET paused_at = NULL, paused_until = NULL, pause_note = NULL, paused_by = NULL,
  failures = 0
WHERE number = :number AND paused_at IS NOT NULL;

-- name: index
-- By what each file of a source was last known.
SELECT file, known_as FROM known_file WHERE source = :source;

-- name: know_file
-- Remember by what a file is known.
INSERT INTO known_file (source, file, known_as) VALUES (:source, :file, :known_as)
ON CONFLICT (source, file) DO UPDATE SET known_as = excluded.known_as;

-- name: forget_file
-- Forget by what a file was known.
DELETE FROM known_file WHERE known_file.source = :source AND known_file.file = :file;
