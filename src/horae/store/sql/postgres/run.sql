-- name: open_of
-- The runs of some receipts that have not ended.
SELECT * FROM run
WHERE ended_at IS NULL
  AND receipt IN (SELECT value FROM json_each(:numbers));
