-- What a run used: millionths of a dollar, and tokens. While it goes on, what it has used so far.
ALTER TABLE run ADD COLUMN cost INTEGER;
ALTER TABLE run ADD COLUMN tokens INTEGER;
-- What runs draw on: `all`, `entry:NUMBER`, and whatever else limits them (`Purse.of`).
CREATE TABLE purse (
  name TEXT NOT NULL,
  started_at INTEGER NOT NULL,    -- of the run
  run INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
  PRIMARY KEY (name, started_at, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX purse_run ON purse (run);
-- What is held until a budget has room again.
CREATE INDEX receipt_until ON receipt (start_at)
  WHERE status = 'held' AND reason_code = 'budget';
UPDATE run SET
  cost = CAST(round(json_extract(facts, '$.cost') * 1000000) AS INTEGER),
  tokens = json_extract(facts, '$.tokens')
WHERE instr(facts, '"tokens') > 0 OR instr(facts, '"cost"') > 0;
INSERT INTO purse (name, started_at, run)
SELECT 'all', started_at, number FROM run WHERE cost IS NOT NULL OR tokens IS NOT NULL;
INSERT INTO purse (name, started_at, run)
SELECT 'entry:' || receipt.entry, run.started_at, run.number
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.cost IS NOT NULL OR run.tokens IS NOT NULL;
