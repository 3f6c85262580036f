-- Nodes write beside each other, each fenced by its own row. Who joins anew changes a key of it, for
-- which it waits until whoever writes under the old one is done; who renews a lease does not.
CREATE UNIQUE INDEX member_generation ON member (name, generation);
-- What every node reads of all that happens.
CREATE INDEX event_for_nodes ON event (number)
  WHERE kind IN ('cancel', 'token_revoked', 'session_ended');
-- Which node runs a receipt is known when it has it, not before.
UPDATE receipt SET machine = NULL WHERE status = 'waiting';
