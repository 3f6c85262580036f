-- name: starting
-- Where several receipts stand, how many runs each has had, and what the next one needs. Rows are
-- locked in the order of their numbers here and below: of two nodes one waits, and then sees.
SELECT receipt.number, receipt.status,
  coalesce((SELECT max(attempt) FROM run WHERE run.receipt = receipt.number), 0),
  entry.memory, receipt.digest, text.body
FROM receipt JOIN entry ON entry.number = receipt.entry
LEFT JOIN text ON text.digest = receipt.digest
WHERE receipt.number IN (SELECT value FROM json_each(:numbers))
ORDER BY receipt.number FOR NO KEY UPDATE OF receipt;

-- name: ending
-- Where the receipts of runs that have not ended stand, each with its run, and how they go on. The
-- plus says that runs are found by their numbers: under load the index of open runs has far more
-- rows of runs that have ended since than of open ones.
SELECT receipt.number, entry, status, attempts, run.number, receipt.key, policy, run.started_at
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE +run.ended_at IS NULL AND run.number IN (SELECT value FROM json_each(:numbers))
ORDER BY receipt.number FOR NO KEY UPDATE OF receipt, run;

-- name: goes_on
-- What decides how some entries go on after a run.
SELECT number, spec, accounted_to, ended_at, streak, failures
FROM entry WHERE number IN (SELECT value FROM json_each(:numbers))
ORDER BY number FOR NO KEY UPDATE;

-- name: move
-- Change where several receipts stand, all alike; a node that has them is written down.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code, attempts = attempts + :attempts,
  ended_at = NULL, settled_at = NULL, account = NULL, machine = coalesce(CAST(:machine AS TEXT), machine)
WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: moved
-- Write down that several receipts stand elsewhere.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT :now, 'receipt', entry, number, :facts, :actor
FROM json_each(:numbers) CROSS JOIN receipt ON number = value;

-- name: run_numbers
-- The last number that was given to a run; those that follow are given by taking them.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'run';
