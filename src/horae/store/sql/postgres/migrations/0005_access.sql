-- Named tokens. The text of one is 256 random bits, of which the ledger has the SHA-256 in hex.
CREATE TABLE token (
  name TEXT COLLATE "C" PRIMARY KEY,
  digest TEXT COLLATE "C" NOT NULL UNIQUE,
  scopes TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  used_at BIGINT
);

-- Browsers that are logged in, each by the digest of its cookie.
CREATE TABLE session (
  digest TEXT COLLATE "C" PRIMARY KEY,
  token TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  agent TEXT COLLATE "C" NOT NULL
);
