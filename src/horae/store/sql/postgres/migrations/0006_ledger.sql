-- The ledger on PostgreSQL: the same tables as on SQLite, and who the members of a cluster are.
-- Moments of the plan (…_at, accounted_to, …_until) are in microseconds since 1970, UTC; to read
-- one: SELECT to_timestamp(planned_at / 1e6) FROM receipt. Leases are in the database's own time.
-- Texts are compared by their bytes, as SQLite compares them.

-- A word that SQLite knows.
CREATE FUNCTION instr(text, text) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN strpos($1, $2);

-- Whoever writes locks this row first, so that writers come one after the other, and must know
-- the term, and the version of the schema.
CREATE TABLE term (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  number BIGINT NOT NULL,
  version BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO term (one, number, version) VALUES (1, 1, 1);

-- The last number that was given to an entry, and to a receipt, also if it is gone.
CREATE TABLE counter (
  name TEXT COLLATE "C" PRIMARY KEY,
  last BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO counter (name, last) VALUES ('entry', 0), ('receipt', 0);

-- Something with a when. Its number never changes; its address is where it stands now.
CREATE TABLE entry (
  number BIGINT PRIMARY KEY,
  source TEXT COLLATE "C" NOT NULL,
  address TEXT COLLATE "C" NOT NULL,
  title TEXT COLLATE "C" NOT NULL,
  file TEXT COLLATE "C" NOT NULL,
  line BIGINT NOT NULL,
  rule TEXT COLLATE "C" NOT NULL,
  body TEXT COLLATE "C" NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  commit_id TEXT COLLATE "C",
  spec TEXT COLLATE "C",
  unarmed TEXT COLLATE "C",
  accounted_to BIGINT NOT NULL,
  ended_at BIGINT,
  next_at BIGINT,
  ticks BIGINT NOT NULL DEFAULT 0,
  streak BIGINT NOT NULL DEFAULT 0,
  memory TEXT COLLATE "C",
  failures BIGINT NOT NULL DEFAULT 0,
  first_seen_at BIGINT NOT NULL,
  missing_at BIGINT,
  gone_at BIGINT,
  paused_at BIGINT,
  paused_until BIGINT,
  pause_note TEXT COLLATE "C",
  broken TEXT,
  broken_at BIGINT,
  paused_by TEXT COLLATE "C",
  UNIQUE (source, address),
  CHECK ((spec IS NULL) <> (unarmed IS NULL)),
  CHECK (paused_at IS NOT NULL OR (paused_until IS NULL AND pause_note IS NULL)),
  CHECK (next_at IS NULL OR (spec IS NOT NULL AND gone_at IS NULL AND paused_at IS NULL)),
  CHECK (missing_at IS NULL OR gone_at IS NULL),
  CHECK (paused_by IS NULL OR paused_at IS NOT NULL),
  CHECK (broken_at IS NULL OR broken IS NOT NULL)
) WITH (fillfactor = 80);
CREATE INDEX entry_next ON entry (next_at, number) WHERE next_at IS NOT NULL;
CREATE INDEX entry_rests ON entry (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX entry_file ON entry (source, file) WHERE gone_at IS NULL;
CREATE INDEX entry_follows ON entry (number) WHERE instr(spec, '"rule":{"after":') > 0;
CREATE INDEX entry_missing ON entry (source) WHERE missing_at IS NOT NULL;
CREATE INDEX entry_latest ON entry (greatest(accounted_to, ended_at));
CREATE INDEX entry_agent ON entry (number) WHERE instr(spec, '"work":"tick"') > 0;
CREATE INDEX entry_unarmed ON entry (number) WHERE unarmed IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_paused ON entry (number) WHERE paused_at IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_idle ON entry (number) WHERE next_at IS NULL AND gone_at IS NULL;
CREATE INDEX entry_failing ON entry (number) WHERE failures >= 3;
CREATE INDEX entry_broken ON entry (number) WHERE broken IS NOT NULL;
CREATE INDEX entry_loose ON entry (source, file) WHERE commit_id IS NULL AND gone_at IS NULL;

-- By what each file of a source was known when it was last read.
CREATE TABLE known_file (
  source TEXT COLLATE "C" NOT NULL,
  file TEXT COLLATE "C" NOT NULL,
  known_as TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (source, file)
);

-- What was decided about one planned moment, or about a range of them.
CREATE TABLE receipt (
  number BIGINT PRIMARY KEY,
  entry BIGINT NOT NULL REFERENCES entry (number),
  key TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL CHECK (
    status IN ('waiting', 'held', 'starting', 'running', 'done', 'no_work', 'failed', 'killed',
      'interrupted', 'skipped', 'coalesced', 'missed')),
  reason TEXT COLLATE "C" NOT NULL,
  planned_at BIGINT NOT NULL,
  through_at BIGINT,
  count BIGINT NOT NULL CHECK (count >= 1),
  start_at BIGINT NOT NULL,
  decided_at BIGINT NOT NULL,
  file TEXT COLLATE "C" NOT NULL,
  line BIGINT NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  commit_id TEXT COLLATE "C",
  policy TEXT COLLATE "C" NOT NULL,
  work TEXT COLLATE "C" NOT NULL,
  agents TEXT COLLATE "C" NOT NULL,
  parent BIGINT,
  attempts BIGINT NOT NULL DEFAULT 0,
  deaths BIGINT NOT NULL DEFAULT 0,
  ended_at BIGINT,
  settled_at BIGINT,
  machine TEXT COLLATE "C",
  actor TEXT COLLATE "C" NOT NULL DEFAULT 'engine',
  reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
  UNIQUE (entry, key),
  CHECK (count = 1 OR through_at IS NOT NULL),
  CHECK ((ended_at IS NOT NULL) =
    (status IN ('done', 'no_work', 'failed', 'killed', 'interrupted'))),
  CHECK (settled_at IS NULL OR status NOT IN ('waiting', 'held', 'starting', 'running'))
) WITH (fillfactor = 80);
CREATE INDEX receipt_planned ON receipt (planned_at);
CREATE INDEX receipt_open ON receipt (entry, number)
  WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');
CREATE INDEX receipt_unsettled ON receipt (number)
  WHERE settled_at IS NULL
    AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');

-- A receipt with what its entry is called now.
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt JOIN entry ON entry.number = receipt.entry;

-- One attempt at what a receipt stands for. It ends without an outcome if it was given back.
CREATE TABLE run (
  number BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  receipt BIGINT NOT NULL REFERENCES receipt (number) ON DELETE CASCADE,
  attempt BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  pid BIGINT,
  pid_started BIGINT,
  ended_at BIGINT,
  outcome TEXT COLLATE "C" CHECK (
    outcome IN ('done', 'no_work', 'failed', 'killed', 'interrupted')),
  exit_code BIGINT,
  reason TEXT COLLATE "C" NOT NULL DEFAULT '',
  facts TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  member TEXT COLLATE "C",
  generation BIGINT,
  reason_code TEXT COLLATE "C" NOT NULL DEFAULT '',
  UNIQUE (receipt, attempt),
  CHECK ((pid IS NULL) = (pid_started IS NULL)),
  CHECK (outcome IS NULL OR ended_at IS NOT NULL)
);
CREATE UNIQUE INDEX run_open ON run (receipt) WHERE ended_at IS NULL;

-- What happened, in order. Nothing is ever changed here.
CREATE TABLE event (
  number BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  entry BIGINT,
  receipt BIGINT,
  facts TEXT COLLATE "C" NOT NULL,
  actor TEXT COLLATE "C" NOT NULL DEFAULT 'engine'
);

-- What receipts run, by digest. Bytes, because a text may hold what no TEXT column takes.
CREATE TABLE text (
  digest TEXT COLLATE "C" PRIMARY KEY,
  body BYTEA NOT NULL,
  kept_at BIGINT NOT NULL
);

-- What starts agents from outside of plans; the rows stand in the order in which they came.
CREATE TABLE trigger (
  rowid BIGINT GENERATED BY DEFAULT AS IDENTITY UNIQUE,
  id TEXT COLLATE "C" PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL UNIQUE,
  spec TEXT COLLATE "C" NOT NULL,
  is_enabled BIGINT NOT NULL,
  enabled_times BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

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

-- Who decides, in which term, and until when.
CREATE TABLE lease (
  name TEXT COLLATE "C" PRIMARY KEY,
  holder TEXT COLLATE "C" NOT NULL,
  term BIGINT NOT NULL,
  until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 10);
INSERT INTO lease (name, holder, term, until) VALUES ('leader', '', 0, 'epoch');

-- The machines of a cluster. Each time one joins it is of a new generation, and what was written
-- of an older one is refused from then on.
CREATE SEQUENCE generation AS BIGINT;
CREATE TABLE member (
  name TEXT COLLATE "C" PRIMARY KEY,
  generation BIGINT NOT NULL,
  address TEXT COLLATE "C" NOT NULL,
  labels JSONB NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  slots BIGINT NOT NULL,
  is_draining BOOLEAN NOT NULL DEFAULT false,
  joined_at TIMESTAMPTZ NOT NULL,
  seen_at TIMESTAMPTZ NOT NULL,
  until TIMESTAMPTZ NOT NULL,
  left_at TIMESTAMPTZ,
  is_reaped BOOLEAN NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- What all members share and nobody else may know.
CREATE TABLE secret (
  name TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

-- The output of runs, as far as it is small, for when the machine that made them is gone.
CREATE TABLE run_log (
  run BIGINT PRIMARY KEY REFERENCES run (number) ON DELETE CASCADE,
  body BYTEA NOT NULL
);
