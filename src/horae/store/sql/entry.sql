-- name: of_source
-- Every entry that a source ever had.
SELECT * FROM entry WHERE source = :source ORDER BY number;

-- name: all
-- Every entry there ever was.
SELECT * FROM entry ORDER BY number;

-- name: one
-- One entry.
SELECT * FROM entry WHERE number = :number;

-- name: insert
-- Give a new entry its number.
INSERT INTO entry (
  source, address, title, file, line, rule, body, digest, commit_id, spec, unarmed,
  accounted_to, first_seen_at)
VALUES (
  :source, :address, :title, :file, :line, :rule, :body, :digest, :commit_id, :spec, :unarmed,
  :now, :now)
RETURNING number;

-- name: update
-- Write down where an entry stands now and what it is; it is there, so it is not gone.
UPDATE entry SET
  address = :address, title = :title, file = :file, line = :line, rule = :rule, body = :body,
  digest = :digest, commit_id = :commit_id, spec = :spec, unarmed = :unarmed, gone_at = NULL
WHERE number = :number;

-- name: account
-- Move the watermark, whatever it was.
UPDATE entry SET accounted_to = :accounted_to, ended_at = :ended_at WHERE number = :number;

-- name: account_if_unchanged
-- Move the watermark forward if the entry is still as it was when the decision was made.
UPDATE entry SET accounted_to = :accounted_to, ended_at = :ended_at
WHERE number = :number AND accounted_to = :was_accounted_to AND ended_at IS :was_ended_at
  AND :accounted_to >= :was_accounted_to AND gone_at IS NULL AND paused_at IS NULL;

-- name: ended
-- Remember the end of the last planned run.
UPDATE entry SET ended_at = :now WHERE number = :number;

-- name: gone
-- Note that an entry is no longer where it was.
UPDATE entry SET gone_at = :now WHERE number = :number;

-- name: pause
-- Let an entry rest if it is there and does not rest yet.
UPDATE entry SET paused_at = :now, paused_until = :until, pause_note = :note
WHERE number = :number AND paused_at IS NULL AND gone_at IS NULL;

-- name: resume
-- End an entry's rest.
UPDATE entry SET paused_at = NULL, paused_until = NULL, pause_note = NULL
WHERE number = :number AND paused_at IS NOT NULL;
