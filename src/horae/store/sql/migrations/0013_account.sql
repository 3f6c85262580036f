-- The usage limits of accounts. An account is a program and its login.
CREATE TABLE account (
  name TEXT PRIMARY KEY,
  reason_code TEXT NOT NULL,
  since_at INTEGER NOT NULL,      -- when it was met, and not ended since
  until_at INTEGER NOT NULL,      -- when it is tried again
  tries INTEGER NOT NULL,         -- how often it was met again
  probe INTEGER                   -- the receipt that goes first when it is tried
) STRICT;
-- The account whose limit holds the receipt.
ALTER TABLE receipt ADD COLUMN account TEXT;
