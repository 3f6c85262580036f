-- oldest: 14
-- What users know to be wrong with an entry, in its state since a time.
CREATE TABLE acknowledgement (
  entry BIGINT PRIMARY KEY REFERENCES entry (number) ON DELETE CASCADE,
  state TEXT COLLATE "C" NOT NULL,
  since_at BIGINT NOT NULL,
  at BIGINT NOT NULL,
  until_at BIGINT,
  note TEXT COLLATE "C" NOT NULL,
  actor TEXT COLLATE "C" NOT NULL
);
