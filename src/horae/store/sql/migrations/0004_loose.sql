-- Which files hold what is in no commit is asked at each scan of a plan under git.
CREATE INDEX entry_loose ON entry (source, file) WHERE commit_id IS NULL AND gone_at IS NULL;
