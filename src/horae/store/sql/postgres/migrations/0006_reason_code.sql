-- What a reason says, for programs; what was written before has no code.
ALTER TABLE receipt ADD COLUMN reason_code TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN reason_code TEXT COLLATE "C" NOT NULL DEFAULT '';
-- The engine tries these again at its next start.
UPDATE receipt SET reason_code = 'not_ready' WHERE status = 'held' AND reason LIKE 'held back: %';
-- PostgreSQL keeps the columns that a view had when it was made.
DROP VIEW filed;
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt JOIN entry ON entry.number = receipt.entry;
