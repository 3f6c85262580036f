-- Which version of the schema a node must know to use the ledger. A migration that begins with
-- `-- oldest: N` sets it to N, so that older nodes go on; any other one to its own version.
ALTER TABLE term ADD COLUMN oldest BIGINT NOT NULL DEFAULT 10;
