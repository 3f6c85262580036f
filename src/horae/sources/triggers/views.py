"""Structs of triggers, their agents and their runs in the API, `--json` and the Python client.

As in the older routes, a trigger is a workflow, and its receipt a dispatch.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import UNSET, defstruct

from horae.core.entry import PROPERTIES
from horae.core.views import Code, Maybe, Shape, TimeText

T = TypeVar("T")


class DispatchStatus(StrEnum):
    PENDING = "pending"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class _Definition(Shape, frozen=True, kw_only=True):
    id: str
    name: str
    agent_id: str
    agent: str
    trigger_config: dict[str, Any]
    prompt_template: str
    poll_interval_secs: int
    enabled: bool
    tool_policy: dict[str, Any]


if TYPE_CHECKING:
    _WithPolicy = _Definition
else:  # each policy property is declared once, in core
    _WithPolicy = defstruct(
        "_WithPolicy",
        [(each.name, str | Maybe, UNSET) for each in PROPERTIES],
        bases=(_Definition,),
        rename={each.name: each.option for each in PROPERTIES},
        frozen=True,
        kw_only=True,
    )


class TriggerLine(_WithPolicy, frozen=True, kw_only=True):
    created_at: TimeText
    updated_at: TimeText
    file: str | None
    notes: tuple[str, ...] | Maybe = UNSET  # after a change: why the trigger cannot start its agent


class TriggerAgent(Shape, frozen=True, kw_only=True):
    id: str
    name: str
    status: str  # running if enabled, else stopped
    activity: str  # busy or idle
    config: dict[str, Any]
    session_id: str | None
    backend_type: str | None
    created_at: TimeText
    updated_at: TimeText
    file: str | None
    notes: tuple[str, ...] | Maybe = UNSET  # after a change: why the agent cannot run


class _DispatchFacts(Shape, frozen=True, kw_only=True):
    id: str
    workflow_id: str
    workflow: str
    source_id: str
    agent_id: str
    prompt_sent: str
    status: str
    dispatched_at: TimeText
    completed_at: TimeText | None
    reason: str
    reason_code: Code | None
    receipt: int
    planned_at: TimeText
    count: int
    actor: str
    approved_by: str | None


class Dispatch(_DispatchFacts, frozen=True, kw_only=True):
    status: DispatchStatus


class SentMessage(_DispatchFacts, frozen=True, kw_only=True):
    dispatch_status: DispatchStatus


class Approval(Shape, frozen=True, kw_only=True):
    receipt: int
    workflow: str
    agent: str
    source_id: str
    prompt: str
    status: str
    created_at: TimeText
    expires_at: TimeText


class ApprovalPage(Shape, frozen=True):
    approvals: tuple[Approval, ...]


class Page(Shape, Generic[T], frozen=True, kw_only=True):
    items: tuple[T, ...]
    total: int
    limit: int
    offset: int


TriggerPage: TypeAlias = Page[TriggerLine]
TriggerAgentPage: TypeAlias = Page[TriggerAgent]
DispatchPage: TypeAlias = Page[Dispatch]


class Usage(Shape, frozen=True, kw_only=True):
    runs: int
    turns: int
    input_tokens: int
    output_tokens: int
    total_cost_usd: float  # as the programs report
    duration_secs: float


class AgentUsage(Shape, frozen=True, kw_only=True):
    agent_id: str
    agent: str
    current: Usage
    cumulative: Usage
    outcomes: dict[str, int]


class ClearedContext(Shape, frozen=True, kw_only=True):
    status: str
    agent_id: str


class FieldChange(Shape, frozen=True, kw_only=True):
    field: str
    old: Any
    new: Any


class FileNote(Shape, frozen=True, kw_only=True):
    """What keeps an agent or a trigger of a file from running."""

    code: str
    severity: str
    file: str
    line: int
    column: int
    message: str
    fix: str | None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.severity} {self.code}: {self.message}; {self.fix}"


class FileChange(Shape, frozen=True, kw_only=True):
    verb: str  # create, update, unchanged, disable, delete or skip
    what: str  # agent or workflow
    name: str
    place: str
    diff: tuple[FieldChange, ...] = ()
    notes: tuple[FileNote, ...] = ()

    @property
    def is_change(self) -> bool:
        return self.verb not in {"unchanged", "skip"}

    def diff_lines(self, arrow: str) -> list[str]:
        """Return the changes as text, each value as JSON of at most 60 characters."""

        def short(value: object) -> str:
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= 60 else f"{text[:57]}..."

        return [f"{each.field}: {short(each.old)} {arrow} {short(each.new)}" for each in self.diff]


class FileChanges(Shape, frozen=True):
    changes: tuple[FileChange, ...]
