-- How things stand is asked often, and must not cost more the more entries there are.
CREATE INDEX entry_agent ON entry (number) WHERE instr(spec, '"work":"tick"') > 0;
CREATE INDEX entry_unarmed ON entry (number) WHERE unarmed IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_paused ON entry (number) WHERE paused_at IS NOT NULL AND gone_at IS NULL;
CREATE INDEX entry_idle ON entry (number) WHERE next_at IS NULL AND gone_at IS NULL;
CREATE INDEX entry_failing ON entry (number) WHERE failures >= 3;
