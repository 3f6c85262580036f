-- name: begin
-- A browser that has logged in, unless its token was revoked meanwhile.
INSERT INTO session (digest, token, created_at, used_at, expires_at, agent)
SELECT :digest, :token, :now, :now, :until, :agent
WHERE :token = 'operator' OR EXISTS (SELECT 1 FROM token WHERE name = :token);

-- name: make_room
-- Forget what is over, and those not used for longest beyond the most that there may be.
DELETE FROM session WHERE expires_at <= :now OR digest IN (
  SELECT digest FROM session ORDER BY used_at DESC, digest LIMIT 1000000 OFFSET :most
);

-- name: one
-- One session that lasts, by the digest of its cookie, with what its token allows.
SELECT session.*, token.scopes FROM session LEFT JOIN token ON token.name = session.token
WHERE session.digest = :digest AND expires_at > :now
  AND (token.name IS NOT NULL OR session.token = 'operator');

-- name: all
-- Every session that lasts, with what its token allows, the last used one first.
SELECT session.*, token.scopes FROM session LEFT JOIN token ON token.name = session.token
WHERE expires_at > :now AND (token.name IS NOT NULL OR session.token = 'operator')
ORDER BY session.used_at DESC, session.digest;

-- name: renew
-- Let a session last longer, unless that was written down a moment ago.
UPDATE session SET used_at = :now, expires_at = :until WHERE digest = :digest AND used_at <= :before;

-- name: end
-- End a session by how its digest begins.
DELETE FROM session WHERE substr(digest, 1, 12) = :id;
