"""Agents, their definitions (a headline tagged `:agent:`), and prompt templates.

A prompt such as `It is {{fire_time}}` is rendered once; values are never rendered again. What is
known when an entry is armed is filled in then, the scheduled time and the key at the start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self, TypeVar

from horae.core.actor import API_FIX, api_scopes
from horae.core.budget import FIX as BUDGET_FIX, Purse, parse_budget
from horae.core.command import CommandError, Unready, call_of
from horae.core.entry import DEFAULT, PROPERTIES, Origin, Policy, PolicyProperty, Wake, key_time
from horae.core.receipt import shown as one_line
from horae.core.tool_policy import OPEN, Mode, ToolPolicy, parse_policy, policy_of
from horae.errors import Exit, HoraeError
from horae.org.check import shown
from horae.org.document import read
from horae.org.page import NAME_FIX, Heading, choices, heading_of
from horae.org.plan import Diagnostic, Plan, Severity, is_id
from horae.timing.duration import DurationError, parse_duration
from horae.timing.zone import parse_rfc3339

PROMPT: Final = "System prompt"  # the title of the prompt's heading
_KEYS: Final = (
    "ID", "MODEL", "TAGLINE", "TOOLKITS", "RUNNER", "COMMAND", "TIMEOUT", "TOOLS", "ENV", "WAKE",
    "API", "BUDGET", "RESUME", *(each.key for each in PROPERTIES if each.in_agents),
)  # fmt: skip
SWITCH: Final = {
    **dict.fromkeys(("1", "true", "t", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "nil", "no", "off"), False),
}
_WORDS: Final = re.compile(r"[\s,]+")
_TOOLS: Final = re.compile(r"[^\s,()]+(?:\([^()]*\))?|[()]")  # a pattern keeps its blanks
_Value = TypeVar("_Value")


class RunnerKind(StrEnum):
    COMMAND = "command"  # a program that gets the prompt
    MODEL = "model"  # a model that is called


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """The definition of an agent; a value that is None or empty comes from the settings."""

    name: str  # its :ID:, else its title if valid as a name, else empty
    title: str
    prompt: str
    model: str | None = None
    tagline: str = ""
    toolkits: tuple[str, ...] = ()
    runner: RunnerKind | None = None
    command: tuple[str, ...] = ()
    timeout: timedelta | None = None
    tools: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # environment variables that it gets
    wake: Wake | None = None
    api: tuple[str, ...] = ()  # scopes of the token that its runs get
    budget: tuple[Purse, ...] = ()  # of all its runs together
    resumes: bool = False  # whether a run continues the session of the last one
    policy: Policy = DEFAULT  # of its runs, unless their entry has another


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent; values of `environment` may name secrets and are never shown."""

    name: str
    definition: AgentDefinition
    origin: Origin
    directory: str = ""  # its working directory, relative to the plan root
    variables: tuple[str, ...] = ()  # environment variables of the engine that it gets
    environment: Mapping[str, str] = field(default_factory=dict)
    remedy: str | None = None  # how to name its command, if not with :COMMAND: at its origin
    roles: tuple[str, ...] = ()  # the roles of board tasks that it takes; empty: any
    is_member: bool = False  # of the crew, or the keeper: files left in its tree are its memory

    @property
    def policy(self) -> ToolPolicy:
        return policy_of(self.definition.tools)


class AgentNotFoundError(HoraeError, code="no_agent", exit_code=Exit.NOT_FOUND):
    def __init__(self, name: str, *, near: str | None = None, why: Unready | None = None) -> None:
        self.name, self.near = name, near
        called = repr(one_line(name))
        self.reason = f"there is no agent {called}"
        self.fix = f"did you mean {near}?" if near else "`horae agent list` lists the agents"
        if why is not None:
            self.reason, self.fix = (
                f"the agent {called} cannot run: {why.reason}",
                why.fix,
            )
        super().__init__(f"{self.reason}; {self.fix}")

    @classmethod
    def among(cls, name: str, known: Iterable[str]) -> Self:
        from difflib import get_close_matches  # only for the message

        near = get_close_matches(name[:64], list(known)[:1000], n=1)
        return cls(name, near=near[0] if near else None)


class AgentError(HoraeError, code="agent_definition"):
    def __init__(self, file: str, line: int, column: int, *, reason: str, fix: str) -> None:
        self.file, self.line, self.column = file, line, column
        self.reason, self.fix = reason, fix
        super().__init__(f"{file}:{line}:{column}: {reason}; {fix}")

    def found(self) -> Diagnostic:
        place = (self.file, self.line, self.column)
        return Diagnostic(*place, "agent", Severity.ERROR, self.reason, self.fix)


def parse_agent(text: str, file: str = "-") -> AgentDefinition:
    r"""Parse an agent definition; AgentError if the text has none that can run.

    >>> parse_agent("* wren :agent:\nYou write.\n").prompt
    'You write.'
    >>> parse_agent("* wren :agent:\n", "wren.org")
    Traceback (most recent call last):
    horae.core.agent.AgentError: wren.org:1:1: the agent has no system prompt; write it
    under a heading called System prompt
    """
    plan = read(text)
    index, heading = _defined(plan, file)
    # Under its heading, up to one of one or two stars; else all that follows the agent's drawer.
    headlines, own = plan.headlines, heading.body + "\n"
    below = headlines[index + 1 :]
    for at, headline in enumerate(headlines):
        if headline.title == PROMPT:
            rest = headlines[at + 1 :]
            end = next((n for n, each in enumerate(rest) if each.level <= 2), len(rest))
            own, below = headline.text.partition("\n")[2], rest[:end]
            break
    prompt = (own + "".join(each.text for each in below)).strip()
    if not prompt:
        fix = f"write it under a heading called {PROMPT}"
        raise AgentError(file, heading.line, 1, reason="the agent has no system prompt", fix=fix)
    return _definition(heading, prompt)


def agent_name(text: str) -> str:
    r"""Return the name of the agent in a text, whether or not it can run; empty if none.

    >>> agent_name("* The writer :agent:\n:PROPERTIES:\n:ID: wren\n:END:\n")
    'wren'
    >>> agent_name("* wren :agent:\n"), agent_name("* The writer :agent:\n")
    ('wren', '')
    """
    try:
        _, heading = _defined(read(text), "")
    except AgentError:
        return ""
    name = _own_name(heading)
    return name if is_id(name) else ""


def check_agent(text: str, file: str = "-") -> list[Diagnostic]:
    try:
        _, heading = _defined(read(text), file)
        parse_agent(text, file)
    except AgentError as error:
        return [error.found()]
    return list(heading.oddities(_KEYS))


def agent_sections(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each agent definition in a plan, padded to keep line numbers."""
    places, headlines = plan.places(), plan.headlines
    tagged = [at for at, headline in enumerate(headlines) if "agent" in headline.tags]
    for start, end in pairwise([*tagged, len(headlines)]):
        line = places[start].line
        # Empty lines instead of the ones above keep the line numbers of problems.
        yield line, "\n" * (line - 1) + "".join(each.text for each in headlines[start:end])


def _defined(plan: Plan, file: str) -> tuple[int, Heading]:
    for index, headline in enumerate(plan.headlines):
        if "agent" in headline.tags:
            return index, heading_of(headline, plan.places()[index].line, file)
    fix = "tag the headline of the definition :agent:"
    raise AgentError(file, 1, 1, reason="no agent is defined here", fix=fix)


def _definition(heading: Heading, prompt: str) -> AgentDefinition:
    props = heading.props

    def refused(key: str, reason: str, fix: str) -> AgentError:
        line, column = heading.places.get(key, (heading.line, 1))
        return AgentError(heading.file, line, column, reason=f":{key}: {reason}", fix=fix)

    def value(
        key: str, parsed: Callable[[str], _Value], fix: str, wrong: str = "is not valid"
    ) -> _Value | None:
        if key not in props:
            return None
        try:
            return parsed(props[key])
        except DurationError as error:
            why = f"write {error.suggestion or fix}"
            raise refused(key, error.reason, why) from None
        except (ValueError, KeyError):
            raise refused(key, f"{shown(props[key])} {wrong}", fix) from None

    given: dict[str, Any] = {
        each.name: value(each.key, partial(_read, each), each.fix)
        for each in PROPERTIES
        if each.in_agents and each.key in props
    }
    name = _own_name(heading)
    if name and not is_id(name):
        raise refused("ID", f"{shown(name)} is not a valid name", NAME_FIX)
    try:
        # :ENV: counts without a :COMMAND:, too: the program from the settings gets it.
        call = call_of({"COMMAND": "agent", **props})
    except CommandError as error:
        raise refused(error.key, error.reason, "correct or remove it") from None
    assert call is not None, "there is a command"
    return AgentDefinition(
        name,
        heading.name,
        prompt,
        model=props.get("MODEL"),
        tagline=props.get("TAGLINE", ""),
        toolkits=tuple(filter(None, _WORDS.split(props.get("TOOLKITS", "")))),
        runner=value("RUNNER", lambda said: RunnerKind(said.lower()), choices(RunnerKind)),
        command=call.argv if "COMMAND" in props else (),
        timeout=value("TIMEOUT", parse_duration, "15m"),
        tools=tuple(_TOOLS.findall(props.get("TOOLS", ""))),
        variables=call.variables,
        wake=value("WAKE", lambda said: Wake(said.lower()), choices(Wake)),
        api=value("API", api_scopes, API_FIX, "is not a scope that a run may have") or (),
        budget=value("BUDGET", lambda said: parse_budget(said, "UTC"), BUDGET_FIX) or (),
        resumes=value("RESUME", lambda said: SWITCH[said.lower()], "write yes or no") or False,
        policy=Policy(**given) if given else DEFAULT,
    )


def _read(each: PolicyProperty, text: str) -> object:
    return each.parse(text, "UTC")


def _own_name(heading: Heading) -> str:
    return heading.props.get("ID", heading.name if is_id(heading.name) else "")


LONGEST: Final = 256 * 1024  # characters of a template
# Values of other names are put on one line, whatever they contain.
LONG: Final = frozenset({"body", "metadata"})
NO_VARIABLES: Final = "Template contains no {{variables}}; the same text will be sent every time"

# The variables of every prompt, empty unless a request fills them.
STANDARD: Final = ("title", "body", "url", "labels", "assignee", "source_id", "metadata")

_MARK: Final = "#!horae-order "  # the prefix of an order that is more than its template
_PLACE: Final = re.compile(r"\{\{([^{}]*)\}\}")
_ANY_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def variables(template: str) -> list[str]:
    """Return the variables of a template without repetition, in the order of the text.

    >>> variables("{{ title }}: {{body}} ({{title}})")
    ['title', 'body']
    """
    return list(dict.fromkeys(found.strip() for found in _PLACE.findall(template)))


def problems(template: str, known: Iterable[str]) -> list[str]:
    """Return the problems of a template that may use the *known* names.

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
        own = name.removeprefix("metadata.")  # one of the caller's own values
        if name in names or (own != name and own.replace("-", "_").isidentifier()):
            continue
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        hint = f" Did you mean '{{{{{near[0]}}}}}'?" if near else ""
        known_ones = f"Known variables: {', '.join(names)}"
        found.append(f"unknown template variable '{{{{{name[:60]}}}}}'.{hint} {known_ones}")
    # Variables are blanked, not cut out, so that the rest keeps its place.
    rest = _PLACE.sub(lambda place: " " * len(place[0]), template)
    if (at := rest.find("{{")) >= 0:
        found.append(f"unclosed template placeholder at position {at}")
    return found


def render(template: str, values: Mapping[str, str]) -> str:
    """Fill in a template; a name without a value stays as it is.

    >>> render("{{ title }} is {{late}}", {"title": "{{late}}"})
    '{{late}} is {{late}}'
    """

    def filled(place: re.Match[str]) -> str:
        name = place[1].strip()
        value = values.get(name)
        return place[0] if value is None else as_written(name, value)

    return _PLACE.sub(filled, template)


def as_written(name: str, value: str) -> str:
    r"""Return a value for a prompt: one line, unless its name allows several.

    >>> as_written("title", "two\nlines"), as_written("body", "two\nlines\x00")
    ('two lines', 'two\nlines�')
    """
    if name in LONG:
        return _CONTROL.sub("\ufffd", value.replace("\r\n", "\n"))
    return _ANY_CONTROL.sub(" ", value)


class AgentUnavailableError(HoraeError, code="agent_unavailable", exit_code=Exit.TEMPORARY):
    def __init__(self, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """A prompt template, its known values, and the tool policy of the run.

    `approval` is `until` a time when it is requested, and `at` a time and `by` an actor when given.
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
        """The tool policy that the runner enforces; an approval concerns the run, not tools."""
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
    if not text.startswith(_MARK):
        return PromptOrder(text)
    head, _, template = text.removeprefix(_MARK).partition("\n")
    data = json.loads(head)
    tools = parse_policy(data["tools"])
    return PromptOrder(template, data["values"], data["metadata"], tools, data.get("approval", {}))
