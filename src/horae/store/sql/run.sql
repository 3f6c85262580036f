-- name: insert
-- Begin an attempt.
INSERT INTO run (number, receipt, attempt, started_at, member, generation)
VALUES (:number, :receipt, :attempt, :now, :member, :generation);

-- name: open_of_receipt
-- The run of a receipt that has not ended, if there is one.
SELECT * FROM run WHERE receipt = :receipt AND ended_at IS NULL;

-- name: identify
-- Note which process a run is.
UPDATE run SET pid = :pid, pid_started = :pid_started WHERE run.number = :number;

-- name: close
-- End a run; without an outcome it was given back.
UPDATE run SET
  ended_at = :now, outcome = :outcome, exit_code = :exit_code, reason = :reason,
  reason_code = :reason_code, facts = :facts,
  cost = coalesce(CAST(:cost AS BIGINT), run.cost),
  tokens = coalesce(CAST(:tokens AS BIGINT), run.tokens)
WHERE run.number = :number;

-- name: of_receipt
-- Every attempt of a receipt.
SELECT * FROM run WHERE receipt = :receipt ORDER BY attempt;

-- name: one
-- One run.
SELECT * FROM run WHERE number = :number;

-- name: last_of_entry
-- The newest run of an entry.
SELECT run.* FROM run JOIN receipt ON receipt.number = run.receipt
WHERE receipt.entry = :entry ORDER BY run.number DESC LIMIT 1;

-- name: newest_ends
-- The newest run of each entry that ended well, and the newest that did not.
SELECT max(run.number) FROM run JOIN receipt ON receipt.number = run.receipt
WHERE run.outcome IS NOT NULL
GROUP BY receipt.entry, CASE WHEN run.outcome IN ('done', 'no_work') THEN 1 ELSE 0 END;

-- name: all_open
-- Every run that has not ended.
SELECT * FROM run WHERE ended_at IS NULL ORDER BY number;
