-- name: one
-- The limit of an account; of its probe only if that is not over.
SELECT name, reason_code, since_at, until_at, tries,
  (SELECT number FROM receipt WHERE number = probe
   AND (status = 'waiting' OR status = 'starting' OR status = 'running')) AS probe
FROM account WHERE name = :name FOR NO KEY UPDATE OF account;

-- name: all
-- The limits of all accounts, those first that are over first.
SELECT name, reason_code, since_at, until_at, tries,
  (SELECT number FROM receipt WHERE number = probe
   AND (status = 'waiting' OR status = 'starting' OR status = 'running')) AS probe
FROM account ORDER BY until_at, name;

-- name: keep
-- Write down the limit of an account.
INSERT INTO account (name, reason_code, since_at, until_at, tries)
VALUES (:name, :reason_code, :since_at, :until_at, :tries)
ON CONFLICT (name) DO UPDATE SET
  reason_code = excluded.reason_code, since_at = excluded.since_at,
  until_at = excluded.until_at, tries = excluded.tries, probe = NULL;

-- name: probe
-- Let one receipt go first.
UPDATE account SET probe = :receipt WHERE name = :name;

-- name: open
-- Forget the limit of an account.
DELETE FROM account WHERE name = :name;

-- name: held
-- Receipts that a limit holds which is over, the first in line first; said so that the small index
-- of what is open is used.
SELECT receipt.number, receipt.account, account.name IS NOT NULL AS is_limited
FROM receipt LEFT JOIN account ON account.name = receipt.account
WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running')
  AND entry > 0 AND status = 'held' AND receipt.account IS NOT NULL
  AND (account.name IS NULL OR account.until_at <= :now AND NOT EXISTS (
    SELECT 1 FROM receipt AS first WHERE first.number = account.probe
    AND (first.status = 'waiting' OR first.status = 'starting' OR first.status = 'running')))
ORDER BY start_at, receipt.number;

-- name: set_back
-- Forget limits by a clock that ran ahead.
DELETE FROM account WHERE since_at > :now OR until_at > :most;
