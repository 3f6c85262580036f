"""Who an agent is: a definition in org, a headline tagged `:agent:` and its system prompt.

* The writer :agent:
:PROPERTIES:
:ID: wren
:MODEL: small-1
:TOOLS: git search
:END:
** System prompt
You write one section at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from horae.core.command import CommandError, call_of
from horae.core.scope import API_FIX, api_scopes
from horae.errors import HoraeError
from horae.org.check.finding import shown
from horae.org.document import read
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.crew.lifecycle import NAME_FIX, Heading, heading_of
from horae.timing.duration import DurationError, parse_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from horae.org.plan import Plan

PROMPT: Final = "System prompt"  # the title of the heading above it
_KEYS: Final = (
    "ID",
    "MODEL",
    "TAGLINE",
    "TOOLKITS",
    "RUNNER",
    "COMMAND",
    "TIMEOUT",
    "TOOLS",
    "ENV",
    "WAKE",
    "API",
)
_WORDS: Final = re.compile(r"[\s,]+")
_TOOLS: Final = re.compile(r"[^\s,()]+(?:\([^()]*\))?|[()]")  # a pattern keeps its blanks
_Word = TypeVar("_Word", bound=StrEnum)


class RunnerKind(StrEnum):
    """What carries an agent's run out."""

    COMMAND = "command"  # a program that is handed the prompt
    MODEL = "model"  # a model that is called


class Wake(StrEnum):
    """When a tick wakes its agent."""

    ALWAYS = "always"
    DUE = "due"  # only if there is something to do


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """Who an agent is; what is None or empty is as the settings have it."""

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


class AgentError(HoraeError):
    """A definition that says not enough, or says it wrongly, for an agent to run."""

    code = "agent_definition"

    def __init__(self, file: str, line: int, column: int, *, reason: str, fix: str) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.reason = reason
        self.fix = fix
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
    horae.sources.agents.rules.AgentError: wren.org:1:1: the agent has no system prompt; write it
    under a heading called System prompt
    """
    plan = read(text)
    index, heading = _defined(plan, file)
    prompt = _prompt(plan, index, heading)
    if not prompt:
        fix = f"write it under a heading called {PROMPT}"
        raise AgentError(file, heading.line, 1, reason="the agent has no system prompt", fix=fix)
    return _definition(heading, prompt, file)


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
    """Return why a definition cannot be used, and what in it is not read."""
    plan = read(text)
    try:
        _, heading = _defined(plan, file)
        found = list(heading.oddities(file, _KEYS))
        parse_agent(text, file)
    except AgentError as error:
        return [error.found()]
    return found


def _defined(plan: Plan, file: str) -> tuple[int, Heading]:
    """Return the first headline that is tagged `:agent:`."""
    for index, headline in enumerate(plan.headlines):
        if "agent" in headline.tags:
            line = plan.places()[index].line
            return index, heading_of(headline, line)
    fix = "tag the headline of the definition :agent:"
    raise AgentError(file, 1, 1, reason="no agent is defined here", fix=fix)


def _prompt(plan: Plan, index: int, heading: Heading) -> str:
    """Return the system prompt: under its heading, else all that follows the agent's drawer."""
    headlines = plan.headlines
    for at, headline in enumerate(headlines):
        if headline.title == PROMPT:
            below = headlines[at + 1 :]
            # A heading of one or two stars ends it; deeper ones are part of the prompt.
            end = next((n for n, each in enumerate(below) if each.level <= 2), len(below))
            own = headline.text.partition("\n")[2]
            return (own + "".join(each.text for each in below[:end])).strip()
    rest = "".join(each.text for each in headlines[index + 1 :])
    return f"{heading.body}\n{rest}".strip()


def _definition(heading: Heading, prompt: str, file: str) -> AgentDefinition:
    props = heading.props
    name = _own_name(heading)
    if name and not is_id(name):
        raise _refused(
            heading, file, "ID", reason=f"{shown(name)} is not a valid name", fix=NAME_FIX
        )
    try:
        # :ENV: counts without a command of its own, too: the one of the settings sees it.
        call = call_of({"COMMAND": "agent", **props})
    except CommandError as error:
        fix = "correct or remove it"
        raise _refused(heading, file, error.key, reason=error.reason, fix=fix) from None
    assert call is not None, "there is a command"
    return AgentDefinition(
        name,
        heading.name,
        prompt,
        model=props.get("MODEL"),
        tagline=props.get("TAGLINE", ""),
        toolkits=_words(props.get("TOOLKITS", "")),
        runner=_choice(RunnerKind, heading, file, "RUNNER"),
        command=call.argv if "COMMAND" in props else (),
        timeout=_timeout(heading, file),
        tools=tuple(_TOOLS.findall(props.get("TOOLS", ""))),
        variables=call.variables,
        wake=_choice(Wake, heading, file, "WAKE"),
        api=_api(heading, file),
    )


def _api(heading: Heading, file: str) -> tuple[str, ...]:
    """Return the scopes of the token that runs of the agent get, if they get one."""
    said = heading.props.get("API")
    if said is None:
        return ()
    try:
        return api_scopes(said)
    except ValueError:
        reason = f"{shown(said)} is not a scope that a run may have"
        raise _refused(heading, file, "API", reason=reason, fix=API_FIX) from None


def _own_name(heading: Heading) -> str:
    """Return what an agent's :ID: says, else its title if that can be a name."""
    return heading.props.get("ID", heading.name if is_id(heading.name) else "")


def _refused(heading: Heading, file: str, key: str, *, reason: str, fix: str) -> AgentError:
    line, column = heading.places.get(key, (heading.line, 1))
    return AgentError(file, line, column, reason=f":{key}: {reason}", fix=fix)


def _choice(words: type[_Word], heading: Heading, file: str, key: str) -> _Word | None:
    """Return the word that a property chooses, in any case; None if it is not there."""
    said = heading.props.get(key)
    if said is None:
        return None
    try:
        return words(said.lower())
    except ValueError:
        reason = f"{shown(said)} is not valid"
        raise _refused(heading, file, key, reason=reason, fix=choices(words)) from None


def _timeout(heading: Heading, file: str) -> timedelta | None:
    """Return how long a run of the agent may take, if it says so."""
    said = heading.props.get("TIMEOUT")
    if said is None:
        return None
    try:
        return parse_duration(said)
    except DurationError as error:
        fix = f"write {error.suggestion or '15m'}"
        raise _refused(heading, file, "TIMEOUT", reason=error.reason, fix=fix) from None


def choices(words: type[StrEnum]) -> str:
    """Return what to write where one word of several is expected.

    >>> choices(Wake)
    'write always or due'
    """
    return f"write {' or '.join(words)}"


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a list, divided by blanks or commas."""
    return tuple(filter(None, _WORDS.split(text)))
