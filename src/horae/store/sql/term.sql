-- name: current
-- The term in which the ledger may be written.
SELECT number FROM term;
