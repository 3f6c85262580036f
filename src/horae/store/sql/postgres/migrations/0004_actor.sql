-- Who requested it; what the clock brought, and what was written before, is the engine's.
ALTER TABLE event ADD COLUMN actor TEXT COLLATE "C" NOT NULL DEFAULT 'engine';
ALTER TABLE receipt ADD COLUMN actor TEXT COLLATE "C" NOT NULL DEFAULT 'engine';
ALTER TABLE entry ADD COLUMN paused_by TEXT COLLATE "C"
  CHECK (paused_by IS NULL OR paused_at IS NOT NULL);
-- PostgreSQL keeps the columns that a view had when it was made.
DROP VIEW filed;
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt JOIN entry ON entry.number = receipt.entry;
