-- What the requester said about it.
ALTER TABLE receipt ADD COLUMN note TEXT NOT NULL DEFAULT '';
