-- name: keep_many
-- Keep texts under their digests, each once.
INSERT INTO text (digest, body, kept_at)
SELECT digest, decode(body, 'hex'), now
FROM json_to_recordset(CAST(:rows AS json)) AS new (digest text, body text, now bigint)
ON CONFLICT (digest) DO NOTHING;
