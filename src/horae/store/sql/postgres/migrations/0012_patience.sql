-- A member whose lease is over may live on until patient_until, as long as the nodes that it has
-- listed, by generation, reach no database either. NULL is that it does not.
ALTER TABLE member ADD COLUMN peers JSONB, ADD COLUMN patient_until TIMESTAMPTZ;
-- Whether a member may have runs that go on, as a leader must see it.
CREATE FUNCTION may_run(known member, reaper BIGINT) RETURNS boolean LANGUAGE sql AS $$
  SELECT known.left_at IS NULL AND NOT known.is_reaped AND (
    known.generation = reaper OR known.until > clock_timestamp()
    OR coalesce(
      known.patient_until > clock_timestamp() AND NOT known.peers @> to_jsonb(reaper), false))
$$;
