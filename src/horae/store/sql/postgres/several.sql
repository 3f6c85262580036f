-- name: starting
-- Where several receipts stand, how many runs each has had, and what the next one needs. Rows are
-- locked in the order of their numbers here and below: of two nodes one waits, and then sees.
SELECT receipt.number, receipt.status, receipt.machine,
  coalesce((SELECT max(attempt) FROM run WHERE run.receipt = receipt.number), 0),
  entry.memory, receipt.digest, text.body
FROM receipt JOIN entry ON entry.number = receipt.entry
LEFT JOIN text ON text.digest = receipt.digest
WHERE receipt.number IN
  (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY receipt.number FOR NO KEY UPDATE OF receipt;

-- name: standing_of_runs
-- Where the receipts of runs that have not ended stand, each with the number of its run.
SELECT receipt.number, entry, status, attempts, machine, run.number
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.ended_at IS NULL
  AND run.number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY receipt.number FOR NO KEY UPDATE OF receipt, run;

-- name: ending
-- The same, and what decides how these receipts go on.
SELECT receipt.number, entry, status, attempts, machine, run.number, receipt.key, policy
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.ended_at IS NULL
  AND run.number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY receipt.number FOR NO KEY UPDATE OF receipt, run;

-- name: goes_on
-- What decides how some entries go on after a run.
SELECT number, spec, accounted_to, ended_at, streak, failures
FROM entry
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))
ORDER BY number FOR NO KEY UPDATE;

-- name: move
-- Change where several receipts stand, all alike; a machine that has them is written down.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code, attempts = attempts + :attempts,
  ended_at = NULL, settled_at = NULL, machine = coalesce(CAST(:machine AS text), machine)
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));

-- name: moved
-- Write down that several receipts stand elsewhere, in their order.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT CAST(:now AS bigint), 'receipt', entry, number, CAST(:facts AS text), CAST(:actor AS text)
FROM jsonb_array_elements_text(CAST(:numbers AS jsonb)) WITH ORDINALITY AS asked (value, place)
JOIN receipt ON number = CAST(value AS bigint)
ORDER BY place;

-- name: run_numbers
-- Give the next numbers to runs; return the last that was given before.
SELECT min(nextval('run_number_seq')) - 1 FROM generate_series(1, :count);
