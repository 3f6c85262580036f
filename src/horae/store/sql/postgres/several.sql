-- name: moved
-- Write down that several receipts stand elsewhere, in their order.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
SELECT CAST(:now AS bigint), 'receipt', entry, number, CAST(:facts AS text), CAST(:actor AS text)
FROM unnest(CAST(translate(:numbers, '[]', '{}') AS bigint[])) WITH ORDINALITY AS asked (value, place)
JOIN receipt ON number = value
ORDER BY place;

-- name: run_numbers
-- Give the next numbers to runs; return the last that was given before.
SELECT min(nextval('run_number_seq')) - 1 FROM generate_series(1, :count);
