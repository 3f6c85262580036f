-- name: standing
-- Where several receipts stand, each with the number by which it was asked for.
SELECT number, entry, status, attempts, machine, number
FROM receipt
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));

-- name: standing_of_runs
-- Where the receipts of runs that have not ended stand, each with the number of its run.
SELECT receipt.number, entry, status, attempts, machine, run.number
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.ended_at IS NULL
  AND run.number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));

-- name: ending
-- The same, and what decides how these receipts go on.
SELECT receipt.number, entry, status, attempts, machine, run.number, receipt.key, policy
FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.ended_at IS NULL
  AND run.number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));

-- name: goes_on
-- What decides how some entries go on after a run.
SELECT number, spec, accounted_to, ended_at, streak, failures
FROM entry
WHERE number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));

-- name: move
-- Change where several receipts stand, all alike.
UPDATE receipt SET
  status = :status, reason = :reason, reason_code = :reason_code, attempts = attempts + :attempts
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

-- name: attempts
-- How many attempts some receipts have had, if they have had any.
SELECT receipt, max(attempt) FROM run
WHERE receipt IN (SELECT CAST(jsonb_array_elements_text(CAST(:receipts AS jsonb)) AS bigint))
GROUP BY receipt;

-- name: texts
-- The texts that some digests have, each with its digest.
SELECT digest, body FROM text
WHERE digest IN (SELECT jsonb_array_elements_text(CAST(:digests AS jsonb)));

-- name: memories
-- What some entries remember, if they remember anything.
SELECT number, memory FROM entry
WHERE memory IS NOT NULL
  AND number IN (SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint));
