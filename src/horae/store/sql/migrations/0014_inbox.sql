-- What users know to be wrong with an entry. It counts as long as the entry is in the same state
-- since the same time: one that recovers and fails again needs attention again.
CREATE TABLE acknowledgement (
  entry INTEGER PRIMARY KEY REFERENCES entry (number) ON DELETE CASCADE,
  state TEXT NOT NULL,
  since_at INTEGER NOT NULL,
  at INTEGER NOT NULL,
  until_at INTEGER,               -- the end of a snooze
  note TEXT NOT NULL,
  actor TEXT NOT NULL
) STRICT;
