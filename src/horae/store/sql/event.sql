-- name: insert
-- Write down what happened.
INSERT INTO event (at, kind, entry, receipt, facts, actor)
VALUES (:at, :kind, :entry, :receipt, :facts, :actor);

-- name: newest
-- The number of the last event.
SELECT coalesce(max(number), 0) FROM event;

-- name: after
-- What happened after an event.
SELECT * FROM event WHERE number > :number ORDER BY number LIMIT :limit;
