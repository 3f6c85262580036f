-- Which files hold what is in no commit is asked at each scan of a plan under git.
CREATE INDEX entry_loose ON entry (source, file) WHERE commit_id IS NULL AND gone_at IS NULL;

-- Whether an entry has an open receipt is asked of each that comes due: one look instead of one
-- for each status, and nothing to write when a receipt goes from one to the next.
DROP INDEX receipt_open;
CREATE INDEX receipt_open ON receipt (entry)
  WHERE (status = 'waiting' OR status = 'held' OR status = 'starting' OR status = 'running');
