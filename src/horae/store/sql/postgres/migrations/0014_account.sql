-- The usage limits of accounts. An account is a program and its login.
CREATE TABLE account (
  name TEXT COLLATE "C" PRIMARY KEY,
  reason_code TEXT COLLATE "C" NOT NULL,
  since_at BIGINT NOT NULL,
  until_at BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  probe BIGINT
);
-- The account whose limit holds the receipt.
ALTER TABLE receipt ADD COLUMN account TEXT COLLATE "C";
