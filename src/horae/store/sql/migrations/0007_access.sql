-- Named tokens. The text of one is 256 random bits, of which the ledger has the SHA-256 in hex.
CREATE TABLE token (
  name TEXT PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  scopes TEXT NOT NULL,           -- words, with blanks between
  created_at INTEGER NOT NULL,
  used_at INTEGER                 -- to the minute
) STRICT;

-- Browsers that are logged in, each by the digest of its cookie.
CREATE TABLE session (
  digest TEXT PRIMARY KEY,
  token TEXT NOT NULL,            -- the name of the token that it was begun with, or operator
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  agent TEXT NOT NULL             -- what the browser calls itself
) STRICT;
