-- name: insert
-- Write down what happened.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
VALUES (:at, :kind, :entry, :receipt, :facts, :actor);

-- name: insert_new
-- Write down which entries are new, in order.
INSERT INTO event (at, kind, entry, facts, actor)
SELECT first_seen_at, 'entry_new', number,
  json_object('address', address, 'rule', rule, 'title', title), :actor
FROM entry WHERE number BETWEEN :first AND :last ORDER BY number;

-- name: newest
-- The number of the last event before which nothing can come any more.
SELECT coalesce(max(number), 0) FROM event WHERE number <= :through;

-- name: after
-- What happened after an event.
SELECT * FROM event WHERE number > :number AND number <= :through ORDER BY number LIMIT :limit;
