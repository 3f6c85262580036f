-- Rules and policies are written as the structs that they are (recode.py).
UPDATE entry SET spec = recode_entry(spec) WHERE spec IS NOT NULL;
UPDATE receipt SET policy = recode_policy(policy) WHERE policy <> '{}';
DROP INDEX entry_follows;
CREATE INDEX entry_follows ON entry (number) WHERE instr(spec, '"rule":{"kind":"after"') > 0;
