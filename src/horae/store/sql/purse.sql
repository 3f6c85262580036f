-- name: put
-- Let a run draw on something, once.
INSERT INTO purse (name, started_at, run) VALUES (:name, :started_at, :run)
ON CONFLICT (name, started_at, run) DO NOTHING;

-- name: use
-- What a run that goes on has used so far.
UPDATE run SET cost = CAST(:cost AS BIGINT), tokens = CAST(:tokens AS BIGINT)
WHERE number = :number AND ended_at IS NULL;

-- name: drawn
-- What was drawn on something since a moment, by entry, and each run that goes on by itself.
SELECT receipt.entry, count(*),
  CAST(coalesce(sum(run.cost), 0) AS BIGINT), count(run.cost),
  CAST(coalesce(sum(run.tokens), 0) AS BIGINT), count(run.tokens),
  CASE WHEN run.ended_at IS NULL THEN run.number ELSE 0 END AS live
FROM purse JOIN run ON run.number = purse.run JOIN receipt ON receipt.number = run.receipt
WHERE purse.name = :name AND purse.started_at >= :since AND purse.run <> :but
  AND (run.outcome IS NOT NULL AND (run.ended_at, run.number) <= (:at, :last)
    OR run.ended_at IS NULL)
GROUP BY receipt.entry, live;

-- name: last
-- What the last runs used that drew on something, newest first.
SELECT run.cost, run.tokens FROM purse JOIN run ON run.number = purse.run
WHERE purse.name = :name AND run.outcome IS NOT NULL
ORDER BY purse.started_at DESC, purse.run DESC LIMIT :most;

-- name: costs
-- What each run of a period used.
SELECT run.started_at, run.cost, run.tokens, entry.number, entry.title, receipt.agents
FROM purse JOIN run ON run.number = purse.run
JOIN receipt ON receipt.number = run.receipt JOIN entry ON entry.number = receipt.entry
WHERE purse.name = 'all' AND purse.started_at >= :since AND purse.started_at < :until
  AND (run.outcome IS NOT NULL OR run.ended_at IS NULL);

-- name: of_receipts
-- What the runs of some receipts used.
SELECT receipt, CAST(sum(cost) AS BIGINT), CAST(sum(tokens) AS BIGINT) FROM run
WHERE receipt IN (SELECT value FROM json_each(:numbers)) AND (cost IS NOT NULL OR tokens IS NOT NULL)
GROUP BY receipt;

-- name: again
-- What was held until a budget has room, and may be tried again.
SELECT number FROM receipt
WHERE status = 'held' AND reason_code = 'budget' AND start_at <= :now ORDER BY start_at, number;

-- name: set_back
-- Try again now what was held by a clock that ran ahead.
UPDATE receipt SET start_at = :now
WHERE status = 'held' AND reason_code = 'budget' AND start_at > :most;
