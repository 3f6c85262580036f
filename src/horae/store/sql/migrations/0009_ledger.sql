-- The ledger. Every moment (…_at, accounted_to, …_until) is in microseconds since 1970, UTC;
-- to read one: SELECT datetime(planned_at / 1000000, 'unixepoch') FROM receipt.

-- Whoever writes must know the present term. On one machine there is only the first.
CREATE TABLE term (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  number INTEGER NOT NULL
) STRICT;
INSERT INTO term (one, number) VALUES (1, 1);

-- Something with a when. Its number never changes; its address is where it stands now.
CREATE TABLE entry (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  address TEXT NOT NULL,
  title TEXT NOT NULL,
  file TEXT NOT NULL,
  line INTEGER NOT NULL,
  rule TEXT NOT NULL,             -- as it is written
  body TEXT NOT NULL,             -- digest of what stands below it
  digest TEXT NOT NULL,           -- digest of all that it runs
  commit_id TEXT,                 -- where in git its present text was first read
  spec TEXT,                      -- rule, work and policy as JSON, if it is armed
  unarmed TEXT,                   -- why it is not, if it is not
  accounted_to INTEGER NOT NULL,  -- every planned moment up to here has its receipt
  ended_at INTEGER,               -- the end of its last planned run
  next_at INTEGER,                -- its next moment that can be decided; none while it cannot fire
  ticks INTEGER NOT NULL DEFAULT 0,     -- how many ticks there have been
  streak INTEGER NOT NULL DEFAULT 0,    -- ticks in a row that found no work
  memory TEXT,                    -- what its runs hand on from one to the next
  failures INTEGER NOT NULL DEFAULT 0,  -- bad ends in a row
  first_seen_at INTEGER NOT NULL,
  missing_at INTEGER,             -- since when scans miss it
  gone_at INTEGER,
  paused_at INTEGER,
  paused_until INTEGER,
  pause_note TEXT,
  broken TEXT,                    -- why its text cannot be read, if it cannot
  broken_at INTEGER,              -- since when its last good text is kept, if it was ever good
  paused_by TEXT,
  UNIQUE (source, address),
  CHECK ((spec IS NULL) <> (unarmed IS NULL)),
  CHECK (paused_at IS NOT NULL OR (paused_until IS NULL AND pause_note IS NULL)),
  CHECK (next_at IS NULL OR (spec IS NOT NULL AND gone_at IS NULL AND paused_at IS NULL)),
  CHECK (missing_at IS NULL OR gone_at IS NULL),
  CHECK (paused_by IS NULL OR paused_at IS NOT NULL),
  CHECK (broken_at IS NULL OR broken IS NOT NULL)
) STRICT;
-- Only what is armed has a next moment, so these are exactly the armed ones that will fire.
CREATE INDEX entry_next ON entry (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX entry_rests ON entry (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX entry_file ON entry (source, file) WHERE gone_at IS NULL;
CREATE INDEX entry_follows ON entry (number) WHERE instr(spec, '"rule":{"after":') > 0;
CREATE INDEX entry_missing ON entry (source) WHERE missing_at IS NOT NULL;
-- The latest moment that an entry goes by: it shows at once whether a clock ran ahead.
CREATE INDEX entry_latest ON entry (max(accounted_to, coalesce(ended_at, accounted_to)));
-- Which files hold what is in no commit is asked at each scan of a plan under git.
CREATE INDEX entry_loose ON entry (source, file) WHERE commit_id IS NULL AND gone_at IS NULL;
-- How things stand is asked often, and must not cost more the more entries there are.
CREATE INDEX entry_agent ON entry (number) WHERE instr(spec, '"work":"tick"') > 0;
CREATE INDEX entry_unarmed ON entry (number) WHERE unarmed IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_paused ON entry (number) WHERE paused_at IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_idle ON entry (number) WHERE next_at IS NULL AND gone_at IS NULL;
CREATE INDEX entry_failing ON entry (number) WHERE failures >= 3;
CREATE INDEX entry_broken ON entry (number) WHERE broken IS NOT NULL;

-- By what each file of a source was known when it was last read.
CREATE TABLE known_file (
  source TEXT NOT NULL,
  file TEXT NOT NULL,
  known_as TEXT NOT NULL,
  PRIMARY KEY (source, file)
) STRICT, WITHOUT ROWID;

-- What was decided about one planned moment, or about a range of them. Words are compared one by
-- one: SQLite would build a list of more than two anew for each row that is written.
CREATE TABLE receipt (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  entry INTEGER NOT NULL REFERENCES entry (number),
  key TEXT NOT NULL,
  status TEXT NOT NULL CHECK (
    status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running'
    OR status = 'done' OR status = 'no_work' OR status = 'failed' OR status = 'killed'
    OR status = 'interrupted' OR status = 'skipped' OR status = 'coalesced' OR status = 'missed'),
  reason TEXT NOT NULL,
  planned_at INTEGER NOT NULL,
  through_at INTEGER,
  count INTEGER NOT NULL CHECK (count >= 1),
  start_at INTEGER NOT NULL,
  decided_at INTEGER NOT NULL,
  file TEXT NOT NULL,
  line INTEGER NOT NULL,
  digest TEXT NOT NULL,
  commit_id TEXT,
  policy TEXT NOT NULL,
  work TEXT NOT NULL,
  agents TEXT NOT NULL,           -- whom it needs, as a JSON list
  parent INTEGER,                 -- the receipt inside whose run it was asked for
  attempts INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,  -- engines that died over it
  ended_at INTEGER,
  settled_at INTEGER,
  machine TEXT,                   -- of several machines, the one that has it
  actor TEXT NOT NULL DEFAULT 'engine',  -- who requested it; what the clock brings is the engine's
  reason_code TEXT NOT NULL DEFAULT '',  -- what the reason says, for programs
  UNIQUE (entry, key),
  CHECK (count = 1 OR through_at IS NOT NULL),
  CHECK ((ended_at IS NOT NULL) = (status = 'done' OR status = 'no_work' OR status = 'failed'
    OR status = 'killed' OR status = 'interrupted')),
  CHECK (settled_at IS NULL OR NOT
    (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running'))
) STRICT;
CREATE INDEX receipt_of_entry ON receipt (entry);
CREATE INDEX receipt_planned ON receipt (planned_at);
-- Whether an entry has an open receipt is asked of each that comes due.
CREATE INDEX receipt_open ON receipt (entry)
  WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');
CREATE INDEX receipt_unsettled ON receipt (number)
  WHERE settled_at IS NULL
    AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');

-- A receipt with what its entry is called now. Receipts first: they are what is looked for.
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt CROSS JOIN entry ON entry.number = receipt.entry;

-- One attempt at what a receipt stands for. It ends without an outcome if it was given back.
CREATE TABLE run (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  receipt INTEGER NOT NULL REFERENCES receipt (number) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  pid INTEGER,
  pid_started INTEGER,
  ended_at INTEGER,
  outcome TEXT CHECK (outcome = 'done' OR outcome = 'no_work' OR outcome = 'failed'
    OR outcome = 'killed' OR outcome = 'interrupted'),
  exit_code INTEGER,
  reason TEXT NOT NULL DEFAULT '',
  facts TEXT NOT NULL DEFAULT '{}',   -- what else is known of it, as JSON
  member TEXT,                    -- of several machines, the one that made it
  generation INTEGER,
  reason_code TEXT NOT NULL DEFAULT '',
  UNIQUE (receipt, attempt),
  CHECK ((pid IS NULL) = (pid_started IS NULL)),
  CHECK (outcome IS NULL OR ended_at IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX run_open ON run (receipt) WHERE ended_at IS NULL;

-- What happened, in order. Nothing is ever changed here.
CREATE TABLE event (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  entry INTEGER,
  receipt INTEGER,
  facts TEXT NOT NULL,
  actor TEXT NOT NULL DEFAULT 'engine'
) STRICT;

-- What receipts run, by digest. Bytes, because a text may hold what no TEXT column takes.
CREATE TABLE text (
  digest TEXT PRIMARY KEY,
  body BLOB NOT NULL,
  kept_at INTEGER NOT NULL
) STRICT;

-- What starts agents from outside of plans.
CREATE TABLE trigger (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL,             -- what it asks for, as JSON
  is_enabled INTEGER NOT NULL,
  enabled_times INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

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
