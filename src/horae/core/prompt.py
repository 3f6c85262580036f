"""Prompts with places to fill in, such as `It is {{fire_time}}, water the garden`.

One pass over a fixed list of names; what is filled in is never looked at again. An entry that
prompts an agent has an order as its text: the template with all values that are known when it is
armed. The scheduled time and the key are filled in when the run starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from horae.core.entry import key_time
from horae.core.tool_policy import OPEN, Mode, ToolPolicy, parse_policy
from horae.errors import Exit, HoraeError
from horae.timing.rfc3339 import parse_rfc3339

LONGEST: Final = 256 * 1024  # characters of a template
# These may have several lines; every other value is one line, whatever somebody put into it.
LONG: Final = frozenset({"body", "metadata"})
NO_VARIABLES: Final = "Template contains no {{variables}}; the same text will be sent every time"

# The variables of every prompt, empty unless a request fills them.
STANDARD: Final = ("title", "body", "url", "labels", "assignee", "source_id", "metadata")

_MARK: Final = "#!horae-order "  # how an order begins that is more than its template
_PLACE: Final = re.compile(r"\{\{([^{}]*)\}\}")
_ANY_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def variables(template: str) -> list[str]:
    """Return the names in a template, each once, in the order of the text.

    >>> variables("{{ title }}: {{body}} ({{title}})")
    ['title', 'body']
    """
    return list(dict.fromkeys(found.strip() for found in _PLACE.findall(template)))


def problems(template: str, known: Iterable[str]) -> list[str]:
    """Return what is wrong with a template whose places may have the *known* names.

    >>> problems("Report for {{fire_tme}}.", ["fire_time", "title"])
    ["unknown template variable '{{fire_tme}}'. Did you mean '{{fire_time}}'?
      Known variables: fire_time, title"]
    """
    if not template.strip():
        return ["the template is empty"]
    if len(template) > LONGEST:
        return [f"the template has more than {LONGEST:,} characters"]
    names, found = list(known), []
    for name in variables(template):
        own = name.removeprefix("metadata.")  # one of the caller's own facts
        if name in names or (own != name and own.replace("-", "_").isidentifier()):
            continue
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        hint = f" Did you mean '{{{{{near[0]}}}}}'?" if near else ""
        known_ones = f"Known variables: {', '.join(names)}"
        found.append(f"unknown template variable '{{{{{name[:60]}}}}}'.{hint} {known_ones}")
    # Places are blanked, not cut out: what is left must not grow together, or move.
    rest = _PLACE.sub(lambda place: " " * len(place[0]), template)
    if (at := rest.find("{{")) >= 0:
        found.append(f"unclosed template placeholder at position {at}")
    return found


def render(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its places filled in; a name without a value stays as it is.

    >>> render("{{ title }} is {{late}}", {"title": "{{late}}"})
    '{{late}} is {{late}}'
    """

    def filled(place: re.Match[str]) -> str:
        name = place[1].strip()
        value = values.get(name)
        return place[0] if value is None else shown(name, value)

    return _PLACE.sub(filled, template)


def shown(name: str, value: str) -> str:
    r"""Return a value as it may stand in a prompt: one line, unless its name may have more.

    >>> shown("title", "two\nlines"), shown("body", "two\nlines\x00")
    ('two lines', 'two\nlines�')
    """
    if name in LONG:
        return _CONTROL.sub("\ufffd", value.replace("\r\n", "\n"))
    return _ANY_CONTROL.sub(" ", value)


# Orders


class AgentUnavailableError(HoraeError, code="agent_unavailable", exit_code=Exit.TEMPORARY):
    def __init__(self, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """A prompt template, its known values, and the tools that the agent may use.

    `approval` says *until* when it is requested, and once given *at* which time and *by* whom.
    """

    template: str
    values: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tools: ToolPolicy = OPEN
    approval: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_approval(self) -> bool:
        return self._requires_approval and "at" not in self.approval

    @property
    def is_asked(self) -> bool:
        return self.needs_approval and "until" in self.approval

    @property
    def asked_until(self) -> datetime:
        return parse_rfc3339(self.approval["until"])

    def asked(self, *, until: datetime) -> PromptOrder:
        return replace(self, approval={"until": key_time(until)})

    def approved(self, *, by: str, at: datetime) -> PromptOrder:
        return replace(self, approval={**self.approval, "by": by, "at": key_time(at)})

    @property
    def _requires_approval(self) -> bool:
        return self.tools.mode is Mode.REQUIRE_APPROVAL

    @property
    def enforced(self) -> ToolPolicy | None:
        """The policy that the runner must enforce; an approval is of the run, not of tools."""
        return None if self.tools == OPEN or self._requires_approval else self.tools

    def text(self) -> str:
        is_plain = "{{" not in self.template and not self.template.startswith(_MARK)
        if is_plain and self.tools == OPEN:
            return self.template
        head = {
            "values": dict(self.values),
            "metadata": dict(self.metadata),
            "tools": self.tools.data(),
            **({"approval": dict(self.approval)} if self.approval else {}),
        }
        return f"{_MARK}{json.dumps(head, sort_keys=True)}\n{self.template}"

    def prompt(self, *, key: str, planned_at: datetime) -> str:
        fire_time = key_time(planned_at)
        is_cron = self.values.get("trigger_type") == "cron"
        facts = {**self.metadata, **({"fire_time": fire_time} if is_cron else {})}
        told = "\n".join(f"{name}: {facts[name]}" for name in sorted(facts))
        values = dict.fromkeys(STANDARD, "") | dict(self.values)
        values |= {"source_id": key, "fire_time": fire_time, "metadata": told}
        return render(self.template, values)


def read_order(text: str) -> PromptOrder:
    """Return the order that a text is.

    >>> read_order("Water the garden.").template
    'Water the garden.'
    """
    if not text.startswith(_MARK):
        return PromptOrder(text)
    head, _, template = text.removeprefix(_MARK).partition("\n")
    data = json.loads(head)
    tools = parse_policy(data["tools"])
    return PromptOrder(template, data["values"], data["metadata"], tools, data.get("approval", {}))
