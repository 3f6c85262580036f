-- name: ahead
-- What goes by a clock that ran ahead of this one; what is gone, too, as it may come back.
SELECT * FROM entry WHERE greatest(accounted_to, ended_at) > :now ORDER BY number;

-- name: numbers
-- Give the next numbers to entries; return the last that was given before.
UPDATE counter SET last = last + :count WHERE name = 'entry' RETURNING last - :count;

-- name: tick_many
-- Count ticks; an entry may have several.
UPDATE entry SET ticks = entry.ticks + new.ticks
FROM (SELECT number, CAST(sum(ticks) AS bigint) AS ticks
  FROM json_to_recordset(CAST(:rows AS json)) AS each (number bigint, ticks bigint)
  GROUP BY number) AS new
WHERE entry.number = new.number;
