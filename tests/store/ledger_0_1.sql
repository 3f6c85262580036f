-- Made by version 0.1; never to be changed.
PRAGMA application_id = 1215263329;
PRAGMA user_version = 9;
BEGIN TRANSACTION;
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
  pause_note TEXT, broken TEXT, broken_at INTEGER CHECK (broken_at IS NULL OR broken IS NOT NULL), paused_by TEXT CHECK (paused_by IS NULL OR paused_at IS NOT NULL),
  UNIQUE (source, address),
  CHECK ((spec IS NULL) <> (unarmed IS NULL)),
  CHECK (paused_at IS NOT NULL OR (paused_until IS NULL AND pause_note IS NULL)),
  CHECK (next_at IS NULL OR (spec IS NOT NULL AND gone_at IS NULL AND paused_at IS NULL)),
  CHECK (missing_at IS NULL OR gone_at IS NULL)
) STRICT;
INSERT INTO "entry" VALUES(1,'org','plan.org::Nightly','Nightly','plan.org',1,'rule 1','body','d',NULL,'{"rule":{"cron":[["30 3 * * *","Europe/Berlin"]]},"work":"command","zone":"Europe/Berlin"}',NULL,1775030400000000,NULL,1775093400000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(2,'org','plan.org::Several','Several','plan.org',2,'rule 2','body','d',NULL,'{"rule":{"cron":[["0 9 * * MON-FRI","UTC"],["30 17 * * FRI","UTC"]]},"zone":"UTC"}',NULL,1775030400000000,NULL,1775034000000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(3,'org','plan.org::Seconds','Seconds','plan.org',3,'rule 3','body','d',NULL,'{"rule":{"cron":[["*/10 * * * * *","America/New_York"]]},"zone":"UTC"}',NULL,1775030410000000,NULL,1775030420000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(4,'org','plan.org::Daily','Daily','plan.org',4,'rule 4','body','d',NULL,'{"rule":{"anchor":"2026-04-02T07:00:00","repeater":"++1d"},"zone":"UTC"}',NULL,1775030400000000,NULL,1775113200000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(5,'org','plan.org::Monthly','Monthly','plan.org',5,'rule 5','body','d',NULL,'{"rule":{"anchor":"2026-01-31T00:00:00","repeater":"+1m"},"zone":"UTC"}',NULL,1775030400000000,NULL,1775174400000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(6,'org','plan.org::Habit','Habit','plan.org',6,'rule 6','body','d',NULL,'{"deadline":1777672800000000,"rule":{"anchor":"2026-04-02T00:00:00","repeater":".+2d/4d"},"zone":"Europe/Berlin"}',NULL,1775030400000000,NULL,1775080800000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(7,'org','plan.org::Once','Once','plan.org',7,'rule 7','body','d',NULL,'{"rule":{"delay":null,"once":1775113200000000},"zone":"UTC"}',NULL,1775030400000000,NULL,1775113200000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(8,'org','plan.org::Delay','Delay','plan.org',8,'rule 8','body','d',NULL,'{"rule":{"delay":"trigger 1:1","once":1775113200000001},"zone":"UTC"}',NULL,1775030400000000,NULL,1775113200000001,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(9,'org','plan.org::Keeper','Keeper','plan.org',9,'rule 9','body','d',NULL,'{"agents":["keeper","Zo\u00eb"],"rule":{"cadence":1200000000,"first":1775030700000000},"work":"tick","zone":"UTC"}',NULL,1775030400000000,NULL,1775030700000000,3,2,NULL,1,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(10,'org','plan.org::Requested','Requested','plan.org',10,'rule 10','body','d',NULL,'{"agents":["keeper"],"rule":{},"work":"prompt","zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(11,'org','plan.org::Alert','Alert','plan.org',11,'rule 11','body','d',NULL,'{"rule":{"after":["failed","late"],"of":""},"work":"post","zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(12,'org','plan.org::After','After','plan.org',12,'rule 12','body','d',NULL,'{"rule":{"after":["recovered"],"of":"Say \"gr\u00fc\u00df\" \u2013 1"},"zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(13,'org','plan.org::Paused','Paused','plan.org',13,'rule 13','body','d',NULL,'{"policy":{"catchup":"none"},"rule":{"cron":[["30 3 * * *","Europe/Berlin"]]},"zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,1775030400000000,NULL,'away',NULL,NULL,'ada');
INSERT INTO "entry" VALUES(14,'org','plan.org::Paused for a week','Paused for a week','plan.org',14,'rule 14','body','d',NULL,'{"policy":{"catchup":"latest"},"rule":{"cron":[["30 3 * * *","Europe/Berlin"]]},"zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,1775030400000000,1775635200000000,'',NULL,NULL,'ada');
INSERT INTO "entry" VALUES(15,'org','plan.org::Careful','Careful','plan.org',15,'rule 15','body','d',NULL,'{"policy":{"api":["read","run"],"catchup":"all","from":1767225600000000,"jitter":300000000,"overlap":"queue","pause_after":5,"requires":["gpu","berlin"],"retry":[3,30000000],"timeout":900000000,"until":1798761599999999},"rule":{"cron":[["0 9 * * *","UTC"]]},"zone":"UTC"}',NULL,1775034000000000,NULL,1775120400000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(16,'org','plan.org::Overlaps','Overlaps','plan.org',16,'rule 16','body','d',NULL,'{"policy":{"overlap":"allow"},"rule":{"cron":[["0 9 * * *","UTC"]]},"zone":"UTC"}',NULL,1775034000000000,1775034060000000,1775120400000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(17,'org','plan.org::Task','Task','plan.org',17,'rule 17','body','d',NULL,'{"policy":{"retry":[1,259200000001]},"rule":{},"work":"dispatch","zone":"UTC"}',NULL,1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(18,'org','plan.org::Forever','Forever','plan.org',18,'rule 18','body','d',NULL,'{"policy":{"until":253402300799999999},"rule":{"cron":[["0 9 * * *","UTC"]]},"zone":"UTC"}',NULL,1775030400000000,NULL,1775034000000000,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "entry" VALUES(19,'org','plan.org::Odd','Odd','plan.org',30,'','body','',NULL,NULL,'the schedule cannot be read',1775030400000000,NULL,NULL,0,0,NULL,0,1775030400000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE event (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  entry INTEGER,
  receipt INTEGER,
  facts TEXT NOT NULL
, actor TEXT NOT NULL DEFAULT 'engine') STRICT;
INSERT INTO "event" VALUES(1,1775030400000000,'entry_new',1,NULL,'{"address":"plan.org::Nightly","rule":"rule 1","title":"Nightly"}','engine');
INSERT INTO "event" VALUES(2,1775030400000000,'entry_new',2,NULL,'{"address":"plan.org::Several","rule":"rule 2","title":"Several"}','engine');
INSERT INTO "event" VALUES(3,1775030400000000,'entry_new',3,NULL,'{"address":"plan.org::Seconds","rule":"rule 3","title":"Seconds"}','engine');
INSERT INTO "event" VALUES(4,1775030400000000,'entry_new',4,NULL,'{"address":"plan.org::Daily","rule":"rule 4","title":"Daily"}','engine');
INSERT INTO "event" VALUES(5,1775030400000000,'entry_new',5,NULL,'{"address":"plan.org::Monthly","rule":"rule 5","title":"Monthly"}','engine');
INSERT INTO "event" VALUES(6,1775030400000000,'entry_new',6,NULL,'{"address":"plan.org::Habit","rule":"rule 6","title":"Habit"}','engine');
INSERT INTO "event" VALUES(7,1775030400000000,'entry_new',7,NULL,'{"address":"plan.org::Once","rule":"rule 7","title":"Once"}','engine');
INSERT INTO "event" VALUES(8,1775030400000000,'entry_new',8,NULL,'{"address":"plan.org::Delay","rule":"rule 8","title":"Delay"}','engine');
INSERT INTO "event" VALUES(9,1775030400000000,'entry_new',9,NULL,'{"address":"plan.org::Keeper","rule":"rule 9","title":"Keeper"}','engine');
INSERT INTO "event" VALUES(10,1775030400000000,'entry_new',10,NULL,'{"address":"plan.org::Requested","rule":"rule 10","title":"Requested"}','engine');
INSERT INTO "event" VALUES(11,1775030400000000,'entry_new',11,NULL,'{"address":"plan.org::Alert","rule":"rule 11","title":"Alert"}','engine');
INSERT INTO "event" VALUES(12,1775030400000000,'entry_new',12,NULL,'{"address":"plan.org::After","rule":"rule 12","title":"After"}','engine');
INSERT INTO "event" VALUES(13,1775030400000000,'entry_new',13,NULL,'{"address":"plan.org::Paused","rule":"rule 13","title":"Paused"}','engine');
INSERT INTO "event" VALUES(14,1775030400000000,'entry_new',14,NULL,'{"address":"plan.org::Paused for a week","rule":"rule 14","title":"Paused for a week"}','engine');
INSERT INTO "event" VALUES(15,1775030400000000,'entry_new',15,NULL,'{"address":"plan.org::Careful","rule":"rule 15","title":"Careful"}','engine');
INSERT INTO "event" VALUES(16,1775030400000000,'entry_new',16,NULL,'{"address":"plan.org::Overlaps","rule":"rule 16","title":"Overlaps"}','engine');
INSERT INTO "event" VALUES(17,1775030400000000,'entry_new',17,NULL,'{"address":"plan.org::Task","rule":"rule 17","title":"Task"}','engine');
INSERT INTO "event" VALUES(18,1775030400000000,'entry_new',18,NULL,'{"address":"plan.org::Forever","rule":"rule 18","title":"Forever"}','engine');
INSERT INTO "event" VALUES(19,1775030400000000,'entry_new',19,NULL,'{"address":"plan.org::Odd","rule":"","title":"Odd"}','engine');
INSERT INTO "event" VALUES(20,1775030400000000,'paused',13,NULL,'{"note":"away","until":null}','ada');
INSERT INTO "event" VALUES(21,1775030400000000,'paused',14,NULL,'{"note":"","until":"2026-04-08T08:00:00Z"}','ada');
INSERT INTO "event" VALUES(22,1775037600000000,'receipt',15,1,'{"key":"cron:2026-04-01T09:00:00Z","reason":"the scheduled time was 1h ago; catch-up is all","reason_code":"caught_up","status":"waiting"}','engine');
INSERT INTO "event" VALUES(23,1775034000000000,'receipt',16,2,'{"key":"cron:2026-04-01T09:00:00Z","reason":"the scheduled time was reached","reason_code":"due","status":"waiting"}','engine');
INSERT INTO "event" VALUES(24,1775034000000000,'receipt',16,2,'{"reason":"the run is being started","reason_code":"starting","status":"starting"}','engine');
INSERT INTO "event" VALUES(25,1775034000000000,'receipt',16,2,'{"reason":"the run has started","reason_code":"started","status":"running"}','engine');
INSERT INTO "event" VALUES(26,1775034060000000,'receipt',16,2,'{"reason":"exit code 0","reason_code":"completed","status":"done"}','engine');
INSERT INTO "event" VALUES(27,1775030410000000,'receipt',3,3,'{"key":"cron:2026-04-01T08:00:10Z","reason":"the scheduled time was reached","reason_code":"due","status":"waiting"}','engine');
INSERT INTO "event" VALUES(28,1775034000000000,'receipt',3,3,'{"reason":"the run is being started","reason_code":"starting","status":"starting"}','engine');
INSERT INTO "event" VALUES(29,1775034000000000,'receipt',3,3,'{"reason":"the run has started","reason_code":"started","status":"running"}','engine');
INSERT INTO "event" VALUES(30,1775034000000000,'receipt',17,4,'{"key":"dispatch:1","reason":"requested","reason_code":"other","status":"waiting"}','engine');
INSERT INTO "event" VALUES(31,1775034000000000,'receipt',17,4,'{"reason":"the run is being started","reason_code":"starting","status":"starting"}','engine');
INSERT INTO "event" VALUES(32,1775034000000000,'receipt',10,5,'{"key":"manual:1","reason":"requested","reason_code":"other","status":"waiting"}','engine');
INSERT INTO "event" VALUES(33,1775034000000000,'receipt',10,5,'{"reason":"no agent","reason_code":"not_ready","status":"held"}','engine');
CREATE TABLE known_file (
  source TEXT NOT NULL,
  file TEXT NOT NULL,
  known_as TEXT NOT NULL,
  PRIMARY KEY (source, file)
) STRICT, WITHOUT ROWID;
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
  settled_at INTEGER, machine TEXT, actor TEXT NOT NULL DEFAULT 'engine', reason_code TEXT NOT NULL DEFAULT '',
  UNIQUE (entry, key),
  CHECK (count = 1 OR through_at IS NOT NULL),
  CHECK ((ended_at IS NOT NULL) = (status = 'done' OR status = 'no_work' OR status = 'failed'
    OR status = 'killed' OR status = 'interrupted')),
  CHECK (settled_at IS NULL OR NOT
    (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running'))
) STRICT;
INSERT INTO "receipt" VALUES(1,15,'cron:2026-04-01T09:00:00Z','waiting','the scheduled time was 1h ago; catch-up is all',1775034000000000,NULL,1,1775034105000000,1775037600000000,'plan.org',15,'d',NULL,'{"api":["read","run"],"catchup":"all","from":1767225600000000,"jitter":300000000,"overlap":"queue","pause_after":5,"requires":["gpu","berlin"],"retry":[3,30000000],"timeout":900000000,"until":1798761599999999}','workflow','[]',NULL,0,0,NULL,NULL,NULL,'engine','caught_up');
INSERT INTO "receipt" VALUES(2,16,'cron:2026-04-01T09:00:00Z','done','exit code 0',1775034000000000,NULL,1,1775034000000000,1775034000000000,'plan.org',16,'d',NULL,'{"overlap":"allow"}','workflow','[]',NULL,1,0,1775034060000000,NULL,NULL,'engine','completed');
INSERT INTO "receipt" VALUES(3,3,'cron:2026-04-01T08:00:10Z','running','the run has started',1775030410000000,NULL,1,1775030410000000,1775030410000000,'plan.org',3,'d',NULL,'{}','workflow','[]',NULL,1,0,NULL,NULL,NULL,'engine','started');
INSERT INTO "receipt" VALUES(4,17,'dispatch:1','starting','the run is being started',1775034000000000,NULL,1,1775034000000000,1775034000000000,'plan.org',17,'d',NULL,'{"retry":[1,259200000001]}','dispatch','[]',NULL,0,0,NULL,NULL,NULL,'engine','starting');
INSERT INTO "receipt" VALUES(5,10,'manual:1','held','no agent',1775034000000000,NULL,1,1775034000000000,1775034000000000,'plan.org',10,'d',NULL,'{}','prompt','["keeper"]',NULL,0,0,NULL,NULL,NULL,'engine','not_ready');
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
  facts TEXT NOT NULL DEFAULT '{}', member TEXT, generation INTEGER, reason_code TEXT NOT NULL DEFAULT '',   -- what else is known of it, as JSON
  UNIQUE (receipt, attempt),
  CHECK ((pid IS NULL) = (pid_started IS NULL)),
  CHECK (outcome IS NULL OR ended_at IS NOT NULL)
) STRICT;
INSERT INTO "run" VALUES(1,2,1,1775034000000000,7,77,1775034060000000,'done',0,'exit code 0','{"tokens":3}',NULL,NULL,'completed');
INSERT INTO "run" VALUES(2,3,1,1775034000000000,8,88,NULL,NULL,NULL,'','{}',NULL,NULL,'');
INSERT INTO "run" VALUES(3,4,1,1775034000000000,NULL,NULL,NULL,NULL,NULL,'','{}',NULL,NULL,'');
CREATE TABLE session (
  digest TEXT PRIMARY KEY,
  token TEXT NOT NULL,            -- the name of the token that it was begun with, or operator
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  agent TEXT NOT NULL             -- what the browser calls itself
) STRICT;
CREATE TABLE term (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  number INTEGER NOT NULL
) STRICT;
INSERT INTO "term" VALUES(1,1);
CREATE TABLE text (
  digest TEXT PRIMARY KEY,
  body BLOB NOT NULL,
  kept_at INTEGER NOT NULL
) STRICT;
INSERT INTO "text" VALUES('d',X'2A204E696768746C790A',1775030400000000);
CREATE TABLE token (
  name TEXT PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  scopes TEXT NOT NULL,           -- words, with blanks between
  created_at INTEGER NOT NULL,
  used_at INTEGER                 -- to the minute
) STRICT;
CREATE TABLE trigger (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL,             -- what it asks for, as JSON
  is_enabled INTEGER NOT NULL,
  enabled_times INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX entry_next ON entry (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX entry_rests ON entry (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX entry_file ON entry (source, file) WHERE gone_at IS NULL;
CREATE INDEX entry_follows ON entry (number) WHERE instr(spec, '"rule":{"after":') > 0;
CREATE INDEX entry_missing ON entry (source) WHERE missing_at IS NOT NULL;
CREATE INDEX entry_latest ON entry (max(accounted_to, coalesce(ended_at, accounted_to)));
CREATE INDEX receipt_of_entry ON receipt (entry);
CREATE INDEX receipt_planned ON receipt (planned_at);
CREATE INDEX receipt_unsettled ON receipt (number)
  WHERE settled_at IS NULL
    AND NOT (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');
CREATE VIEW filed AS
SELECT receipt.*, entry.source, entry.title
FROM receipt CROSS JOIN entry ON entry.number = receipt.entry;
CREATE UNIQUE INDEX run_open ON run (receipt) WHERE ended_at IS NULL;
CREATE INDEX entry_agent ON entry (number) WHERE instr(spec, '"work":"tick"') > 0;
CREATE INDEX entry_unarmed ON entry (number) WHERE unarmed IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_paused ON entry (number) WHERE paused_at IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_idle ON entry (number) WHERE next_at IS NULL AND gone_at IS NULL;
CREATE INDEX entry_failing ON entry (number) WHERE failures >= 3;
CREATE INDEX entry_loose ON entry (source, file) WHERE commit_id IS NULL AND gone_at IS NULL;
CREATE INDEX receipt_open ON receipt (entry)
  WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');
CREATE INDEX entry_broken ON entry (number) WHERE broken IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entry',19);
INSERT INTO "sqlite_sequence" VALUES('event',33);
INSERT INTO "sqlite_sequence" VALUES('receipt',5);
INSERT INTO "sqlite_sequence" VALUES('run',3);
COMMIT;
