-- name: starting
-- Where several receipts stand, how many runs each has had, and what the next one needs.
SELECT receipt.number, receipt.status, receipt.machine,
  coalesce((SELECT max(attempt) FROM run WHERE run.receipt = receipt.number), 0),
  entry.memory, receipt.digest, text.body
FROM json_each(:numbers) CROSS JOIN receipt ON receipt.number = value
CROSS JOIN entry ON entry.number = receipt.entry
LEFT JOIN text ON text.digest = receipt.digest;

-- name: standing_of_runs
-- Where the receipts of runs that have not ended stand, each with the number of its run.
SELECT receipt.number, entry, status, attempts, machine, value
FROM json_each(:numbers) CROSS JOIN run ON run.number = value AND run.ended_at IS NULL
CROSS JOIN receipt ON receipt.number = run.receipt;

-- name: ending
-- The same, and what decides how these receipts go on.
SELECT receipt.number, entry, status, attempts, machine, value, receipt.key, policy
FROM json_each(:numbers) CROSS JOIN run ON run.number = value AND run.ended_at IS NULL
CROSS JOIN receipt ON receipt.number = run.receipt;

-- name: goes_on
-- What decides how some entries go on after a run.
SELECT number, spec, accounted_to, ended_at, streak, failures
FROM json_each(:numbers) CROSS JOIN entry ON number = value;

-- name: move
-- Change where several receipts stand, all alike.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code, attempts = attempts + :attempts,
  ended_at = NULL, settled_at = NULL
WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: moved
-- Write down that several receipts stand elsewhere.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT :now, 'receipt', entry, number, :facts, :actor
FROM json_each(:numbers) CROSS JOIN receipt ON number = value;

-- name: run_numbers
-- The last number that was given to a run; those that follow are given by taking them.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'run';
