-- name: insert
-- Write down what happened.
INSERT INTO event (at, kind, entry, receipt, facts) VALUES (:at, :kind, :entry, :receipt, :facts);

-- name: after
-- What happened after an event.
SELECT * FROM event WHERE number > :number ORDER BY number LIMIT :limit;
