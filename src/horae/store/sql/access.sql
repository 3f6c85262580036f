-- name: add_token
-- A new token, unless its name is taken.
INSERT INTO token (name, digest, scopes, created_at) VALUES (:name, :digest, :scopes, :now)
ON CONFLICT DO NOTHING;

-- name: tokens
-- Every token, by name.
SELECT * FROM token ORDER BY name;

-- name: token
-- One token by the digest of its text.
SELECT * FROM token WHERE digest = :digest;

-- name: revoke_token
-- Forget a token.
DELETE FROM token WHERE name = :name;

-- name: touch_token
-- Write down that a token was used, unless that was written down a moment ago.
UPDATE token SET used_at = :now WHERE name = :name AND (used_at IS NULL OR used_at <= :before);

-- name: end_sessions
-- End every session that was begun with a token.
DELETE FROM session WHERE token = :name;

-- name: end_all_sessions
-- End every session.
DELETE FROM session;
