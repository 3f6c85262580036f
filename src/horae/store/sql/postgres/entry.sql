-- name: in_files
-- What is there in some files of a source.
SELECT * FROM entry
WHERE source = :source AND gone_at IS NULL
  AND file IN (SELECT jsonb_array_elements_text(CAST(:files AS jsonb)));

-- name: at_addresses
-- What stands, or stood when it was last seen, at some addresses of a source.
SELECT * FROM entry
WHERE source = :source
  AND address IN (SELECT jsonb_array_elements_text(CAST(:addresses AS jsonb)));

-- name: ahead
-- What goes by a clock that ran ahead of this one; what is gone, too, as it may come back.
SELECT * FROM entry WHERE greatest(accounted_to, ended_at) > :now ORDER BY number;

-- name: numbers
-- Give the next numbers to entries; return the last that was given before.
UPDATE counter SET last = last + :count WHERE name = 'entry' RETURNING last - :count;

-- name: standing
-- Where some entries stand, whether they may fire, and what their receipts are to carry. No run
-- of theirs ends on another node meanwhile.
SELECT number, accounted_to, ended_at, commit_id, source,
  spec IS NOT NULL AND gone_at IS NULL AND missing_at IS NULL AND paused_at IS NULL AS is_armed,
  file, line, digest
FROM entry
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY number FOR NO KEY UPDATE;

-- name: insert_many
-- Take in new entries.
INSERT INTO entry (
  number, source, address, title, file, line, rule, body, digest, commit_id, spec, unarmed,
  broken, accounted_to, ended_at, next_at, ticks, streak, failures, first_seen_at)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, source text, address text, title text, file text, line bigint, rule text,
  body text, digest text, commit_id text, spec text, unarmed text, broken text, accounted_to bigint,
  ended_at bigint, next_at bigint, ticks bigint, streak bigint, failures bigint, now bigint);

-- name: account_armed_many
-- Move the watermarks of entries that may fire.
UPDATE entry SET
  accounted_to = new.accounted_to, ended_at = new.ended_at, next_at = new.next_at
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, accounted_to bigint, ended_at bigint, next_at bigint)
WHERE entry.number = new.number;

-- name: account_planned_many
-- Move the watermarks of entries that may fire and do not count from an end.
UPDATE entry SET accounted_to = new.accounted_to, next_at = new.next_at
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, accounted_to bigint, next_at bigint)
WHERE entry.number = new.number;

-- name: tick_many
-- Count ticks; an entry may have several.
UPDATE entry SET ticks = entry.ticks + new.ticks
FROM (SELECT number, CAST(sum(ticks) AS bigint) AS ticks
  FROM json_to_recordset(CAST(:rows AS json)) AS each (number bigint, ticks bigint)
  GROUP BY number) AS new
WHERE entry.number = new.number;

-- name: over_as_planned_many
-- Remember the ends of runs that change nothing about the next moment.
UPDATE entry SET
  ended_at = new.ended_at, streak = new.streak, failures = new.failures,
  memory = coalesce(new.memory, entry.memory)
FROM json_to_recordset(CAST(:rows AS json)) AS new (
  number bigint, ended_at bigint, streak bigint, failures bigint, memory text)
WHERE entry.number = new.number;

-- name: know_file_many
-- Remember by what files are known.
INSERT INTO known_file (source, file, known_as)
SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS new (source text, file text, known_as text)
ON CONFLICT (source, file) DO UPDATE SET known_as = excluded.known_as;

-- name: forget_file_many
-- Forget by what files were known.
DELETE FROM known_file
USING json_to_recordset(CAST(:rows AS json)) AS old (source text, file text)
WHERE known_file.source = old.source AND known_file.file = old.file;
