-- On many machines: which of them is to run a receipt, and which has made a run. On one machine
-- nobody asks, and they stay empty.
ALTER TABLE receipt ADD COLUMN machine TEXT;
ALTER TABLE run ADD COLUMN member TEXT;
ALTER TABLE run ADD COLUMN generation INTEGER;
