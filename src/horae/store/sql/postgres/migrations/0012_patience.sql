-- A member whose lease is over may live on until patient_until, as long as the nodes that it has
-- listed, by generation, reach no database either. NULL is that it does not.
ALTER TABLE member ADD COLUMN peers JSONB, ADD COLUMN patient_until TIMESTAMPTZ;
-- Whether a member may have runs that go on, as a leader must see it: one that it has listed, and
-- that was not given up itself, was asked.
CREATE FUNCTION may_run(known member, reaper BIGINT) RETURNS boolean LANGUAGE sql AS $$
  SELECT known.left_at IS NULL AND NOT known.is_reaped AND (
    known.generation = reaper OR known.until > clock_timestamp()
    OR coalesce(known.patient_until > clock_timestamp(), false) AND NOT EXISTS (
      SELECT 1 FROM member AS own WHERE own.generation = reaper
        AND own.left_at IS NULL AND NOT own.is_reaped AND known.peers @> to_jsonb(reaper)))
$$;
