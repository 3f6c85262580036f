-- What the requester said about it.
ALTER TABLE receipt ADD COLUMN note TEXT COLLATE "C" NOT NULL DEFAULT '';
-- PostgreSQL keeps the columns that a view had when it was made.
DROP VIEW filed;
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt JOIN entry ON entry.number = receipt.entry;
