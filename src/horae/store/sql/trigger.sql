-- name: all
-- Every trigger, the longest known first, and how the ledger knows its entry. An agent is a row,
-- too: its name begins with `agent:`, which that of a trigger never does.
SELECT trigger.*, entry.title AS known_title, entry.rule AS known_rule, entry.body AS known_body,
  entry.digest AS known_digest, entry.spec AS known_spec, entry.unarmed AS known_unarmed,
  entry.file AS known_file, entry.broken AS known_broken, entry.missing_at
FROM trigger LEFT JOIN entry ON entry.source = 'trigger'
  AND entry.address = 'trigger:' || trigger.id AND entry.gone_at IS NULL
WHERE substr(trigger.name, 1, 6) <> 'agent:' ORDER BY trigger.created_at, trigger.id;

-- name: count_orphans
-- How many entries there are whose trigger is no longer there.
SELECT count(*) FROM entry WHERE source = 'trigger' AND gone_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM trigger WHERE trigger.id = substr(entry.address, 9));

-- name: page
-- Some triggers, newest first; the rows stand in the order in which they came.
SELECT * FROM trigger WHERE substr(name, 1, 6) <> 'agent:'
ORDER BY rowid DESC LIMIT :limit OFFSET :offset;

-- name: count
-- How many triggers there are: all rows but those between the first and the last agent's name.
SELECT (SELECT count(*) FROM trigger)
  - (SELECT count(*) FROM trigger WHERE name >= 'agent:' AND name < 'agent;');

-- name: one
-- One trigger by its id.
SELECT * FROM trigger WHERE id = :id AND substr(name, 1, 6) <> 'agent:';

-- name: by_name
-- One trigger, or one agent, by its name.
SELECT * FROM trigger WHERE name = :name;

-- name: with_text
-- The triggers whose definition holds some text, the longest known first.
SELECT * FROM trigger
WHERE instr(spec, :text) > 0 AND substr(name, 1, 6) <> 'agent:'
ORDER BY rowid;

-- name: add
-- A new trigger or agent, unless its id or its name is taken.
INSERT INTO trigger (id, name, spec, is_enabled, enabled_times, created_at, updated_at)
VALUES (:id, :name, :spec, :is_enabled, :is_enabled, :now, :now)
ON CONFLICT DO NOTHING;

-- name: change
-- Let a trigger be another if it is as it was read, and its new name is free. Each time it is
-- enabled is counted: a delay then has a key of its own.
UPDATE trigger SET
  name = :name, spec = :spec, is_enabled = :is_enabled, enabled_times = :times, updated_at = :now
WHERE id = :id AND updated_at = :was_updated_at AND enabled_times = :was_times
  AND is_enabled = :was_enabled
  AND NOT EXISTS (SELECT 1 FROM trigger AS other WHERE other.name = :name AND other.id <> :id);

-- name: spend
-- Disable a delay that has fired, unless it was enabled again since.
UPDATE trigger SET is_enabled = 0, updated_at = :now
WHERE id = :id AND is_enabled = 1 AND enabled_times = :times;

-- name: remove
-- Forget a trigger.
DELETE FROM trigger WHERE id = :id AND substr(name, 1, 6) <> 'agent:';

-- name: agents
-- Every agent, newest first.
SELECT * FROM trigger WHERE name >= 'agent:' AND name < 'agent;' ORDER BY rowid DESC;

-- name: agent
-- One agent by its name, else by its id.
SELECT * FROM trigger WHERE name = :name
UNION ALL
SELECT * FROM trigger WHERE id = :id AND name >= 'agent:' AND name < 'agent;'
LIMIT 1;

-- name: change_agent
-- Let an agent be another.
UPDATE trigger SET spec = :spec, is_enabled = :is_enabled, updated_at = :now WHERE name = :name;

-- name: remove_agent
-- Forget an agent.
DELETE FROM trigger WHERE name = :name;

-- name: dispatches
-- The receipts of an entry, newest first, each with the start of its first run.
SELECT filed.*, (SELECT min(started_at) FROM run WHERE run.receipt = filed.number) AS started_at
FROM filed WHERE entry = :entry ORDER BY number DESC LIMIT :limit OFFSET :offset;

-- name: count_dispatches
-- How many receipts an entry has.
SELECT count(*) FROM receipt WHERE entry = :entry;

-- name: carry
-- Let a receipt carry out another text than its entry's.
UPDATE receipt SET digest = :digest WHERE number = :number;
