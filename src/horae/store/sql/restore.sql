-- name: last_numbers
-- The last number of each kind that a ledger has given.
SELECT name, max(seq) FROM sqlite_sequence GROUP BY name;

-- name: forget_number
-- Forget the last number of a kind.
DELETE FROM sqlite_sequence WHERE name = :name;

-- name: begin_after
-- Let the next number of a kind be beyond all that were ever given.
INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number);

-- name: digests
-- By what every token is known.
SELECT digest FROM token;

-- name: keep_tokens
-- Forget every token but those of a list of digests.
DELETE FROM token WHERE digest NOT IN (SELECT value FROM json_each(:digests));
