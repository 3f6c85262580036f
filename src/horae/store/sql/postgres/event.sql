-- name: insert_new
-- Write down which entries are new, in order.
INSERT INTO event (at, kind, entry, facts, actor)
SELECT first_seen_at, 'entry_new', number, CAST(
  json_build_object('address', address, 'rule', rule, 'title', title) AS text), :actor
FROM entry WHERE number BETWEEN :first AND :last ORDER BY number;

-- name: through
-- The number up to which every event is written, or never will be. A writer announces, by a lock
-- that ends with its transaction, after which number its events come (pg_wire.py); the last number
-- is looked at first, as who announces later gets later ones.
SELECT (
  SELECT least(given.last, min((CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) & :mask))
  FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND given.last IS NOT NULL
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) & ~CAST(:mask AS bigint) = :tag)
FROM (SELECT coalesce(pg_sequence_last_value('event_number_seq'), 0) AS last OFFSET 0) AS given;

-- name: for_nodes
-- What every node must obey of what happened after an event; said so that the small index is used.
SELECT * FROM event
WHERE kind IN ('cancel', 'token_revoked', 'session_ended')
  AND number > :number AND number <= :through ORDER BY number LIMIT :limit;

-- name: of_node
-- What a node did after an event, and, where it leads, what was decided and requested. Whoever
-- writes of its own runs is named in the facts; inside of a text its quotes would be escaped.
SELECT * FROM event
WHERE number > :number AND number <= :through AND (
  instr(facts, :node) > 0 OR CAST(:leads AS boolean) AND instr(facts, '"node":"') = 0)
ORDER BY number LIMIT :limit;
