-- name: keep
-- Keep a text under its digest, once.
INSERT INTO text (digest, body, kept_at) VALUES (:digest, :body, :now)
ON CONFLICT (digest) DO NOTHING;

-- name: one
-- The text that has a digest.
SELECT body FROM text WHERE digest = :digest;
