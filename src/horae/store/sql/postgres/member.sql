-- name: now
-- The database's clock, which goes on within a transaction.
SELECT clock_timestamp();

-- name: leader
-- Who decides, and whether still.
SELECT holder, term, until, until > clock_timestamp() AS is_alive FROM lease WHERE name = 'leader';

-- name: lock_leader
-- The same, while no other node changes it.
SELECT holder, until > clock_timestamp() AS is_alive FROM lease WHERE name = 'leader' FOR UPDATE;

-- name: next_term
-- Begin a new term: writes of the last one are refused from now on.
UPDATE term SET number = number + 1 RETURNING number;

-- name: take_lead
-- Let a node decide in a term.
UPDATE lease SET holder = :holder, term = :term, until = clock_timestamp() + :lease
WHERE name = 'leader';

-- name: renew_lead
-- Let the leader lead for longer, unless another node leads.
UPDATE lease SET until = clock_timestamp() + :lease WHERE name = 'leader' AND term = :term;

-- name: resign
-- Let another node lead, at once: all nodes are told.
WITH changed AS (
  UPDATE lease SET until = clock_timestamp() WHERE name = 'leader' AND term = :term RETURNING name)
SELECT pg_notify(current_schema(), 'members') FROM changed;

-- name: join
-- Take in a member, or take it in again: it is of a new generation.
INSERT INTO member AS known (
  name, generation, address, labels, version, slots, may_lead, joined_at, seen_at, until)
VALUES (:name, nextval('generation'), :address, CAST(:labels AS jsonb), :version, :slots,
  :may_lead, clock_timestamp(), clock_timestamp(), clock_timestamp() + :lease)
ON CONFLICT (name) DO UPDATE SET
  generation = excluded.generation, address = excluded.address, labels = excluded.labels,
  version = excluded.version, slots = excluded.slots, may_lead = excluded.may_lead,
  joined_at = excluded.joined_at, seen_at = excluded.seen_at, until = excluded.until,
  left_at = NULL, is_reaped = false, peers = NULL, patient_until = NULL
RETURNING generation;

-- name: renew
-- Let a member live longer, unless its work was given away or it joined anew. Its peers are those of
-- an answer that it has got.
UPDATE member SET seen_at = clock_timestamp(), until = clock_timestamp() + :lease,
  peers = CAST(:peers AS jsonb),
  patient_until = clock_timestamp() + :lease + CAST(:patience AS interval)
WHERE name = :name AND generation = :generation AND NOT is_reaped AND left_at IS NULL;

-- name: leave
-- End a member's lease.
UPDATE member SET left_at = clock_timestamp(), until = least(until, clock_timestamp())
WHERE name = :name AND generation = :generation AND left_at IS NULL;

-- name: drain
-- Say whether a member is to get anything more to run, and to lead; all nodes are told.
WITH changed AS (
  UPDATE member SET is_draining = :is_draining WHERE name = :name RETURNING name)
SELECT pg_notify(current_schema(), 'members') FROM changed;

-- name: all
-- Every member that ever was, the term in which it leads, and how many runs it has.
SELECT member.*, member.until > clock_timestamp() AND left_at IS NULL AS is_alive,
  CASE WHEN lease.until > clock_timestamp() THEN lease.term END AS term,
  coalesce(going.runs, 0) AS runs
FROM member
LEFT JOIN lease ON lease.name = 'leader' AND lease.holder = member.name
LEFT JOIN (SELECT member, count(*) AS runs FROM run WHERE ended_at IS NULL GROUP BY member) AS going
  ON going.member = member.name
ORDER BY member.name;

-- name: lock
-- Wait until a member has written what it began to write.
SELECT 1 FROM member WHERE name = :name FOR UPDATE;

-- name: is_back
-- Whether a member of a generation, or of a newer one, may have runs that go on.
SELECT 1 FROM member
WHERE name = :name AND generation >= :generation AND may_run(member, :reaper);

-- name: lost
-- Whose runs have all ended, of whom it was not noted yet, and of whom something is open. One that
-- has joined again knows best what became of the runs that it made before.
SELECT name, generation FROM member WHERE NOT is_reaped AND NOT may_run(member, :reaper)
UNION
SELECT run.member, run.generation FROM run
WHERE run.ended_at IS NULL AND run.member IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM member AS known
  WHERE known.name = run.member AND known.generation >= run.generation
    AND may_run(known, :reaper))
ORDER BY name, generation;

-- name: open_runs_of
-- The runs of a member and generation that have not ended, and where their receipts stand.
SELECT run.number, run.receipt, receipt.status FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.ended_at IS NULL AND run.member = :name AND run.generation = :generation
ORDER BY run.number;

-- name: reaped
-- Note that nothing of a member is left to be put right; return whether it had left by itself.
UPDATE member SET is_reaped = true WHERE name = :name AND generation = :generation
RETURNING left_at IS NOT NULL;

-- name: under_way
-- What a machine has.
SELECT * FROM filed
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND (status = 'starting' OR status = 'running')
ORDER BY number;

-- name: homes
-- For each agent the machine that made its latest run, if that is not long ago.
SELECT DISTINCT ON (agent) agent, latest.member
FROM (SELECT number, receipt, member FROM run ORDER BY number DESC LIMIT :most) AS latest
JOIN receipt ON receipt.number = latest.receipt
CROSS JOIN LATERAL jsonb_array_elements_text(CAST(receipt.agents AS jsonb)) AS agent
WHERE latest.member IS NOT NULL
ORDER BY agent, latest.number DESC;

-- name: keep_secret
-- Keep a secret unless there is one of that name.
INSERT INTO secret (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: change_secret
-- Let a secret be another.
INSERT INTO secret (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: secret
-- The secret of a name.
SELECT value FROM secret WHERE name = :name;

-- name: keep_log
-- Keep the output of a run.
INSERT INTO run_log (run, body) VALUES (:run, :body)
ON CONFLICT (run) DO UPDATE SET body = excluded.body;

-- name: log
-- The output of a run.
SELECT body FROM run_log WHERE run = :run;
