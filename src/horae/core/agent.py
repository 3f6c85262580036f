"""Agents, and their definitions: a headline tagged `:agent:`, and its system prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self, TypeVar

from horae.core.budget import FIX as BUDGET_FIX, Purse, parse_budget
from horae.core.command import CommandError, Unready, call_of
from horae.core.entry import DEFAULT, PROPERTIES, Origin, Policy, PolicyProperty, Wake
from horae.core.receipt import shown as one_line
from horae.core.scope import API_FIX, api_scopes
from horae.core.tool_policy import ToolPolicy, policy_of
from horae.errors import Exit, HoraeError
from horae.org.check import shown
from horae.org.document import read
from horae.org.page import NAME_FIX, Heading, choices, heading_of
from horae.org.plan import Diagnostic, Plan, Severity, is_id
from horae.timing.duration import DurationError, parse_duration

PROMPT: Final = "System prompt"  # the title of the heading above it
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
    COMMAND = "command"  # a program that is handed the prompt
    MODEL = "model"  # a model that is called


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """A definition; what is None or empty is as the settings have it."""

    name: str  # its :ID:, else its title if that can be a name, else nothing
    title: str
    prompt: str
    model: str | None = None
    tagline: str = ""
    toolkits: tuple[str, ...] = ()
    runner: RunnerKind | None = None
    command: tuple[str, ...] = ()
    timeout: timedelta | None = None
    tools: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # names of the environment's that it may see
    wake: Wake | None = None
    api: tuple[str, ...] = ()  # scopes of the token that its runs get
    budget: tuple[Purse, ...] = ()  # of all its runs together
    resumes: bool = False  # whether a run goes on with the session of the last one
    policy: Policy = DEFAULT  # of its runs, unless their entry has another


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent; values of its `environment` may name secrets and are never shown."""

    name: str
    definition: AgentDefinition
    origin: Origin
    directory: str = ""  # where it works, from the plan root
    variables: tuple[str, ...] = ()  # those of ours that it asks for
    environment: Mapping[str, str] = field(default_factory=dict)
    remedy: str | None = None  # how to name its command, if not with :COMMAND: at its origin
    roles: tuple[str, ...] = ()  # which tasks of a board it gets; none: any
    is_member: bool = False  # of the crew, or the keeper: what it leaves in its tree is its memory

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
    r"""Return the agent that a text defines; raises AgentError if it defines none that can run.

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
    r"""Return the name of the agent that a text defines, whether or not it can run; "" if none.

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
    """Yield the line of each agent definition in a plan, and its text, whose lines keep it."""
    places, headlines = plan.places(), plan.headlines
    tagged = [at for at, headline in enumerate(headlines) if "agent" in headline.tags]
    for start, end in pairwise([*tagged, len(headlines)]):
        line = places[start].line
        # The lines above stand there empty, so that what is odd is said with its line.
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
        # :ENV: counts without a command of its own, too: the one of the settings sees it.
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
    """Return the :ID: of an agent, else its title if that can be a name."""
    return heading.props.get("ID", heading.name if is_id(heading.name) else "")
