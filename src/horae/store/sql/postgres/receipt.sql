-- name: several
-- Some receipts.
SELECT * FROM filed
WHERE number IN (SELECT value FROM json_each(:numbers))
ORDER BY number;

-- name: taken
-- Which of some keys have their receipts; each is given with its entry.
SELECT receipt.entry, receipt.key
FROM jsonb_array_elements(CAST(:keys AS jsonb)) AS wanted (value)
JOIN receipt ON receipt.entry = CAST(wanted.value ->> 0 AS bigint)
  AND receipt.key = wanted.value ->> 1;

-- name: numbers
-- Give the next numbers to receipts; return the last that was given before.
UPDATE counter SET last = last + :count WHERE name = 'receipt' RETURNING last - :count;
