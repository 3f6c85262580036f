-- recode
-- Rules and policies are written as the structs that they are (recode.py).
DROP INDEX entry_follows;
CREATE INDEX entry_follows ON entry (number) WHERE instr(spec, '"rule":{"kind":"after"') > 0;
