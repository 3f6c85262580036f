-- oldest: 10
-- Whether a node ever leads; `horae cluster worker` does not.
ALTER TABLE member ADD COLUMN may_lead BOOLEAN NOT NULL DEFAULT true;
