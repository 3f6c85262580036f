-- name: leave_a_gap
-- Numbers that were given after the backup must not be given again.
UPDATE sqlite_sequence SET seq = seq + :gap;
