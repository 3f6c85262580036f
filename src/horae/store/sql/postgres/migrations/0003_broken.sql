-- Why the text of an entry cannot be read, if it cannot; and since when its last good text is kept
-- instead, if it was ever good.
ALTER TABLE entry ADD COLUMN broken TEXT;
ALTER TABLE entry ADD COLUMN broken_at BIGINT CHECK (broken_at IS NULL OR broken IS NOT NULL);
CREATE INDEX entry_broken ON entry (number) WHERE broken IS NOT NULL;
