"""What answers look like, in the words of JSON Schema: every field is named, and none is left out.

A test holds each of them against what an engine really answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.core.receipt import ReasonCode, Status

if TYPE_CHECKING:
    from horae.web.table import Schema

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
REAL: Final[Schema] = {"type": "number"}
FLAG: Final[Schema] = {"type": "boolean"}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
ANY: Final[Schema] = {}
FACTS: Final[Schema] = {"type": "object"}
STATUS: Final[Schema] = {"type": "string", "enum": [each.value for each in Status]}
# No enum: a client of today must take the codes of tomorrow.
REASON_CODE: Final[Schema] = {
    "type": "string",
    "description": f"known codes: {', '.join(ReasonCode)}; others may follow",
}


def maybe(schema: Schema) -> Schema:
    """Return the shape of something that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    """Return the shape of a list."""
    return {"type": "array", "items": schema}


def shape(**fields: Schema) -> Schema:
    """Return the shape of an object with exactly these fields; a trailing _ is not in a name."""
    named = {name.rstrip("_"): schema for name, schema in fields.items()}
    return {
        "type": "object",
        "properties": named,
        "required": list(named),
        "additionalProperties": False,
    }


def named(name: str) -> Schema:
    """Return a reference to one of the shapes that have a name."""
    return {"$ref": f"#/components/schemas/{name}"}


def and_also(schema: Schema, **fields: Schema) -> Schema:
    """Return the shape of an object with more fields."""
    return shape(**schema["properties"], **fields)


PAUSE: Final = shape(at=MOMENT, until=maybe(MOMENT), note=TEXT, by=maybe(TEXT))
ENTRY: Final = shape(
    entry=NUMBER,
    source=TEXT,
    title=TEXT,
    address=TEXT,
    file=TEXT,
    line=NUMBER,
    zone=TEXT,
    armed=FLAG,
    rule=maybe(TEXT),
    reason=maybe(TEXT),
    first_seen_at=MOMENT,
    gone_at=maybe(MOMENT),
    pause=maybe(PAUSE),
    next_at=maybe(MOMENT),
    failures=NUMBER,
    broken=maybe(TEXT),
    broken_at=maybe(MOMENT),
)
RECEIPT: Final = shape(
    receipt=NUMBER,
    entry=NUMBER,
    title=TEXT,
    key=TEXT,
    status=STATUS,
    reason=TEXT,
    reason_code=maybe(named("ReasonCode")),
    planned_at=MOMENT,
    through_at=maybe(MOMENT),
    count=NUMBER,
    times=NUMBER,
    start_at=maybe(MOMENT),
    decided_at=MOMENT,
    late_seconds=REAL,
    ended_at=maybe(MOMENT),
    attempts=NUMBER,
    zone=TEXT,
    file=TEXT,
    line=NUMBER,
    commit=maybe(TEXT),
    parent=maybe(NUMBER),
    actor=TEXT,
)
ATTEMPT: Final = shape(
    run=NUMBER,
    attempt=NUMBER,
    started_at=MOMENT,
    ended_at=maybe(MOMENT),
    outcome=maybe(STATUS),
    exit_code=maybe(NUMBER),
    reason=TEXT,
    reason_code=maybe(named("ReasonCode")),
    pid=maybe(NUMBER),
    facts=FACTS,
)
RUN: Final = and_also(
    ATTEMPT, receipt=NUMBER, entry=NUMBER, title=TEXT, key=TEXT, status=STATUS, zone=TEXT
)
AGENT: Final = shape(
    agent=TEXT,
    entry=NUMBER,
    file=TEXT,
    line=NUMBER,
    zone=TEXT,
    running=FLAG,
    last_run=maybe(MOMENT),
    next_run=maybe(MOMENT),
    rule=maybe(TEXT),
    lifecycle=maybe(FACTS),
    streak=NUMBER,
    failures=NUMBER,
    stuck=FLAG,
    last_outcome=maybe(STATUS),
    last_reason=maybe(TEXT),
    last_reason_code=maybe(named("ReasonCode")),
    held=maybe(TEXT),
    paused=FLAG,
    troubles=FACTS,
)
FIRE: Final = shape(
    at=MOMENT,
    zone=TEXT,
    entry=NUMBER,
    title=TEXT,
    file=TEXT,
    line=NUMBER,
    key=TEXT,
    estimate=FLAG,
)
EVENT: Final = shape(
    event=NUMBER,
    at=MOMENT,
    kind=TEXT,
    entry=maybe(NUMBER),
    receipt=maybe(NUMBER),
    facts=FACTS,
    actor=TEXT,
)
TASK: Final = shape(
    id=NUMBER,
    title=TEXT,
    status=TEXT,
    priority=TEXT,
    standing=maybe(TEXT),
    reason=maybe(TEXT),
    assignee=maybe(TEXT),
    claimed_by=maybe(TEXT),
    review_owner=maybe(TEXT),
    tags=listed(TEXT),
    depends_on=listed(NUMBER),
    scheduled_for=maybe(TEXT),
    cron_schedule=maybe(TEXT),
    cron_last_run=maybe(TEXT),
    timezone=maybe(TEXT),
    file=TEXT,
    next=listed(MOMENT),
)
PROBLEM: Final = shape(
    type=TEXT, title=TEXT, status=NUMBER, detail=TEXT, code=TEXT, exit_code=NUMBER, facts=FACTS
)
ERROR: Final = shape(error=TEXT)
STANDING: Final = shape(
    at=MOMENT,
    zone=TEXT,
    stall=maybe(TEXT),
    engine=shape(running=FLAG, data=TEXT, pid=maybe(NUMBER), since=maybe(TEXT)),
    entries=NUMBER,
    counts={"type": "object", "additionalProperties": NUMBER},
    agents=listed(named("Agent")),
    **{name: listed(named("Receipt")) for name in ("running", "waiting", "late", "missed")},
    failed=listed(named("Receipt")),
    **{name: listed(named("Entry")) for name in ("next", "paused", "unarmed")},
    problems=listed(TEXT),
)
# What is decided has more to say than what is still to come.
WHY_ANSWER: Final[Schema] = {
    "type": "object",
    "properties": {
        "at": maybe(MOMENT),
        "said": TEXT,
        "moment": FLAG,
        "estimate": FLAG,
        "receipt": maybe(NUMBER),
        "key": TEXT,
        "status": STATUS,
        "reason": TEXT,
        "reason_code": maybe(named("ReasonCode")),
        "through_at": maybe(MOMENT),
        "count": NUMBER,
        "start_at": maybe(MOMENT),
        "decided_at": MOMENT,
        "late_seconds": REAL,
        "ended_at": maybe(MOMENT),
        "file": TEXT,
        "line": NUMBER,
        "commit": maybe(TEXT),
        "digest": TEXT,
        "policy": ANY,
        "actor": TEXT,
        "runs": listed(ATTEMPT),
    },
    "required": ["at", "said", "moment", "estimate", "receipt"],
    "additionalProperties": False,
}
HEALTH: Final = shape(
    ok=FLAG,
    at=MOMENT,
    turned_at=maybe(MOMENT),
    loop_lag_seconds=REAL,
    ledger_writable=FLAG,
    problems=listed(TEXT),
)
DISPATCH: Final = shape(
    id=TEXT,
    workflow_id=TEXT,
    workflow=TEXT,
    source_id=TEXT,
    agent_id=TEXT,
    prompt_sent=TEXT,
    status={
        "type": "string",
        "enum": ["pending", "dispatched", "completed", "failed", "skipped"],
    },
    dispatched_at=MOMENT,
    completed_at=maybe(MOMENT),
    reason=TEXT,
    reason_code=maybe(named("ReasonCode")),
    receipt=NUMBER,
    planned_at=MOMENT,
    count=NUMBER,
    actor=TEXT,
    approved_by=maybe(TEXT),
)
APPROVAL: Final = shape(
    receipt=NUMBER,
    workflow=TEXT,
    agent=TEXT,
    source_id=TEXT,
    prompt=TEXT,
    status=TEXT,
    created_at=MOMENT,
    expires_at=MOMENT,
)


def loosely(**fields: Schema) -> Schema:
    """Return the shape of an object with at least these fields."""
    return {**shape(**fields), "additionalProperties": True}


# How these are kept may be said in fields of their own, so there may be more.
TRIGGER: Final = loosely(
    id=TEXT,
    name=TEXT,
    agent_id=TEXT,
    trigger_config=FACTS,
    prompt_template=TEXT,
    poll_interval_secs=NUMBER,
    enabled=FLAG,
    tool_policy=FACTS,
    created_at=MOMENT,
    updated_at=MOMENT,
)
TRIGGER_AGENT: Final = loosely(
    id=TEXT, name=TEXT, status=TEXT, config=FACTS, created_at=MOMENT, updated_at=MOMENT
)
RECORD: Final = loosely(
    workflow=TEXT,
    schedule=maybe(FACTS),
    tasks=ANY,
    sub_workflows=listed(FACTS),
)

NODE: Final = shape(
    node=TEXT,
    state={"type": "string", "enum": ["up", "draining", "lost", "left"]},
    leads=FLAG,
    term=maybe(NUMBER),
    runs=NUMBER,
    slots=NUMBER,
    labels=listed(TEXT),
    address=TEXT,
    version=TEXT,
    seen_at=MOMENT,
)

TOKEN: Final = shape(name=TEXT, scopes=listed(TEXT), created_at=MOMENT, used_at=maybe(MOMENT))
NAMED: Final[dict[str, Any]] = {
    "Agent": AGENT,
    "Node": NODE,
    "Approval": APPROVAL,
    "Dispatch": DISPATCH,
    "Entry": ENTRY,
    "Error": ERROR,
    "Event": EVENT,
    "Fire": FIRE,
    "Health": HEALTH,
    "Problem": PROBLEM,
    "ReasonCode": REASON_CODE,
    "Receipt": RECEIPT,
    "Record": RECORD,
    "Run": RUN,
    "Status": STANDING,
    "Task": TASK,
    "Token": TOKEN,
    "Trigger": TRIGGER,
    "TriggerAgent": TRIGGER_AGENT,
}


def page_of(name: str) -> Schema:
    """Return the shape of a part of a list, as the older routes have it."""
    return shape(items=listed(named(name)), total=NUMBER, limit=NUMBER, offset=NUMBER)
