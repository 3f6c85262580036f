-- Who requested it; what the clock brought, and what was written before, is the engine's.
ALTER TABLE event ADD COLUMN actor TEXT NOT NULL DEFAULT 'engine';
ALTER TABLE receipt ADD COLUMN actor TEXT NOT NULL DEFAULT 'engine';
ALTER TABLE entry ADD COLUMN paused_by TEXT CHECK (paused_by IS NULL OR paused_at IS NOT NULL);
