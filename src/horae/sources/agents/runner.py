"""Agents: the registry, and the one function that runs an agent, `AgentHost.hold`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import MsgspecError, Struct, structs
from msgspec.json import decode, encode

from horae.core.agent import Agent, AgentNotFoundError, RunnerKind
from horae.core.budget import LEFT, LEFT_TOKENS, left_facts, usage_of
from horae.core.command import Unready
from horae.core.entry import ASKED, REQUEST
from horae.core.ports import (
    Ended,
    Given,
    HeldBackError,
    LedgerUnavailableError,
    LimitedError,
    NoRoomError,
    RunError,
    SecretError,
    Tree,
    Unreleased,
)
from horae.core.private import private_file
from horae.core.receipt import (
    BAD,
    LIMITS,
    EndCause,
    Reason,
    ReasonCode,
    RunFinish,
    Status,
    shown,
    verdict,
)
from horae.core.source import agent_blocks
from horae.core.tool_policy import ToolPolicy, ToolPolicyError, policy_of
from horae.errors import Exit, HoraeError
from horae.files.read import head_of
from horae.process.logs import RunLog
from horae.process.output import Masker, spellings_of
from horae.process.processes import LOG_NAME, Processes, Spec, guessed_secrets
from horae.process.run_settings import (
    RunSettings,
    allowed_environment,
    facts_of,
    hidden_bytes,
    unread,
    why_held,
    why_unready,
)
from horae.sources.agents import programs
from horae.sources.agents.limits import Fault
from horae.sources.agents.model import STEPS, TOKENS, MissingExtraError, ModelOrder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
    from datetime import timedelta

    from horae.core.budget import Balance
    from horae.core.entry import Origin, Policy
    from horae.core.ports import Clock, Held, Job, Ledger, Process, Run
    from horae.core.receipt import Filed
    from horae.core.spending import AccountLimit, Spending
    from horae.files.git.trees import Trees
    from horae.org.plan import Plan
    from horae.process.run_settings import NamedSecrets

log = logging.getLogger(__name__)

SETTINGS: Final = "set agent.command in horae.toml"
MODEL: Final = ("-I", "-m", "horae.sources.agents.model")
OPENAI: Final = "https://api.openai.com/v1"
LONGEST_TEXT: Final = 8000  # characters of an answer in the record of its run
LONGEST_ERROR: Final = 600  # characters of an agent block's error
ANSWER_NAME: Final = "answer.json"  # how to parse the answer after a crash
RESULT_NAME: Final = "result.json"  # the report of the model runner
PROMPT_NAME: Final = "prompt.txt"  # the prompt, for a program that reads a file

_CODES: Final = {
    None: ReasonCode.REPORTED,
    Fault.LIMIT: ReasonCode.USAGE_LIMIT,
    Fault.OVERLOAD: ReasonCode.OVERLOADED,
    Fault.ERROR: ReasonCode.PROVIDER_ERROR,
    Fault.BUDGET: ReasonCode.BUDGET,
}
_LONGEST_RESULT: Final = 8 << 20
_LONGEST_SESSION: Final = 1 << 10
_MOST_FAILURES: Final = 3  # of a session, before the model answers
_LOOK: Final = 0.5  # seconds between checks of a run's usage
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EDITS: Final = (
    "Uncommitted edits in the plan root, which your working directory does not have: {}."
)


class AgentTwiceError(HoraeError, code="agent_twice", exit_code=Exit.CONFLICT):
    def __init__(self, name: str, first: Origin, second: Origin) -> None:
        self.name, self.first, self.second = name, str(first), str(second)
        super().__init__(
            f"the agent {name} is defined twice, at {first} and at {second}; rename one of them"
        )


@dataclass(frozen=True, slots=True)
class Provider:
    url: str = OPENAI
    key: str = "OPENAI_API_KEY"
    model: str | None = None
    steps: int = STEPS
    tokens: int = TOKENS
    is_named: bool = False  # whether the settings name that variable


def provider_of(environ: Mapping[str, str], secrets: Collection[str] = ()) -> Provider:
    """Return the provider, by the first key that is set or among the *secrets*.

    >>> provider_of({"OPENROUTER_API_KEY": "k", "WB_LLM_MODEL": "small"}).url
    'https://openrouter.ai/api/v1'
    """
    keys = ("HORAE_MODEL_KEY", "WB_LLM_KEY", "OPENROUTER_API_KEY", "OPENAI_API_KEY")
    found = (name for name in keys if environ.get(name) or name in secrets)
    key = next(found, "OPENAI_API_KEY")
    is_router = key in {"WB_LLM_KEY", "OPENROUTER_API_KEY"}
    usual = "https://openrouter.ai/api/v1" if is_router else OPENAI
    return Provider(
        url=environ.get("HORAE_MODEL_URL") or environ.get("OPENAI_BASE_URL") or usual,
        key=key,
        model=environ.get("HORAE_MODEL_NAME") or environ.get("WB_LLM_MODEL") or None,
        is_named=key in secrets,
    )


@dataclass(eq=False)
class Registry:
    """The agents by name; `command` returns the command of those that have none."""

    _: KW_ONLY
    command: Callable[[], tuple[str, ...] | None] = lambda: None  # a user may confirm another one
    provider: Provider = Provider()
    settings: str = SETTINGS
    root: Path = Path()
    secrets: NamedSecrets | None = None
    _agents: dict[str, Agent] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Agent]:
        return iter(sorted(self._agents.values(), key=lambda agent: agent.name))

    def add(self, agent: Agent, *, environ: Mapping[str, str]) -> Unready | None:
        """Add an agent; return why it cannot run yet. A second one with its name is refused."""
        known = self._agents.get(agent.name)
        if known is not None and known.origin != agent.origin:
            raise AgentTwiceError(agent.name, known.origin, agent.origin)
        kept = self._agents.setdefault(agent.name, agent)
        return self.obstacle(kept, environ=environ)

    def get(self, name: str) -> Agent:
        if name not in self._agents:
            raise AgentNotFoundError.among(name, self._agents)
        return self._agents[name]

    def command_of(self, agent: Agent) -> tuple[str, ...]:
        return agent.definition.command or self.command() or ()

    def runner_of(self, agent: Agent) -> RunnerKind:
        is_model = agent.definition.model is not None and not self.command_of(agent)
        return agent.definition.runner or (RunnerKind.MODEL if is_model else RunnerKind.COMMAND)

    def model_of(self, agent: Agent) -> str | None:
        is_model = self.runner_of(agent) is RunnerKind.MODEL
        of_provider = self.provider.model if is_model else None
        return agent.definition.model or of_provider

    def asked_for(self, agent: Agent) -> tuple[str, ...]:
        is_key = self.runner_of(agent) is RunnerKind.MODEL and self.provider.is_named
        key = (self.provider.key,) if is_key else ()
        return (*agent.variables, *agent.definition.variables, *key)

    def obstacle(
        self, agent: Agent, *, environ: Mapping[str, str], tools: ToolPolicy | None = None
    ) -> Unready | None:
        """Return why an agent cannot run; *tools* is a policy that must be enforced."""
        is_unnamed = agent.origin.file == REQUEST and agent.name == ASKED
        who = "the agent of the request" if is_unnamed else f"the agent {agent.name}"
        try:
            policy_of(agent.definition.tools)
        except ToolPolicyError as error:
            return Unready(f"{who} has a :TOOLS: that is not valid: {error}", "correct it")
        if why := unread(self.secrets, self.asked_for(agent), agent.environment.values()):
            return why._replace(reason=f"{who}: {why.reason}")
        if self.runner_of(agent) is RunnerKind.MODEL:
            if find_spec("pydantic_ai") is None or find_spec("openai") is None:
                missing = MissingExtraError()
                return Unready(missing.reason, missing.fix)
            if self.model_of(agent) is None:
                return Unready(f"{who} has no model", f"write :MODEL: in {agent.origin}")
            url, key = self.provider.url, self.provider.key
            is_local = re.match(r"http://(?:localhost|127\.|\[::1\])", url) is not None
            if not is_local and not self.provider.is_named and not environ.get(key):
                fix = f"set {key}, or write :COMMAND: in {agent.origin}"
                return Unready(f"{who} has a model and neither a key nor a command", fix)
            return None
        command = self.command_of(agent)
        if not command:
            here = f"write :COMMAND: in {agent.origin}" if agent.remedy is None else agent.remedy
            fix = ", or ".join(filter(None, (here, self.settings)))
            return Unready(f"{who} has no command", fix)
        if tools is not None and not programs.can_keep(programs.program_of(command), tools):
            reason = f"{who}: {command[0]} cannot enforce the tool policy {tools.mode}"
            return Unready(reason, "use claude or :RUNNER: model, or allow all tools")
        why = why_unready(
            command,
            directory=self.root / agent.directory,
            environ={**environ, **agent.environment},
            variables=(*agent.variables, *agent.definition.variables),
        )
        return None if why is None else Unready(f"{who}: {why.reason}", why.fix)


class Part(NamedTuple):
    number: int  # of the run
    directory: Path
    balances: tuple[Balance, ...] = ()  # of its purses
    name: str = ""  # of the run, unless the ledger knows it by its number
    way: Way | None = None
    facts: Mapping[str, str] = MappingProxyType({})  # of the run
    idle: timedelta | None = None  # the limit without output; else the agent's


class Way(NamedTuple):
    agent: Agent
    account: str = ""  # empty: messages about limits are ignored
    by: str = ""
    has_other: bool = False  # whether another way follows a failure of the provider

    def is_over(self, ended: Ended) -> bool:
        is_refused = ended.reason.code == ReasonCode.PROVIDER_ERROR
        return self.has_other and (is_refused or ended.outcome is Status.LIMITED)


@dataclass(frozen=True, slots=True)
class Accounts:
    ledger: Ledger
    clock: Clock
    term: int
    agents: Callable[[], Registry]

    async def free(self, ways: Sequence[Way], receipt: int) -> Way:
        """Return the first way whose account a receipt may use, or raise HeldBackError."""
        limits: list[AccountLimit] = []
        for way in ways:
            if not way.account:
                return way
            now, term = self.clock.now(), self.term
            limit = await self.ledger.ask_account(way.account, receipt, now=now, term=term)
            if limit is None:
                return way
            limits.append(limit)
        first = min(limits, key=lambda each: each.until_at)
        raise HeldBackError(first.reason(), account=first.account)


@dataclass(frozen=True, slots=True)
class AgentOrder:
    agent: Agent
    task: str
    model: str | None
    policy: ToolPolicy
    tree: Tree

    @property
    def prompt(self) -> str:
        if not self.tree.edits:
            return self.task
        edits = _EDITS.format(", ".join(map(shown, self.tree.edits)))
        return f"{self.task.rstrip()}\n\n{edits}\n"

    @property
    def text(self) -> str:
        return f"{self.agent.definition.prompt}\n\n{self.prompt}".strip() + "\n"


@dataclass(frozen=True, slots=True)
class AgentHost:
    registry: Registry
    processes: Processes
    place: RunSettings
    trees: Trees
    accounts: Accounts | None = None  # None: a limit is a failure like any other

    def obstacle(self, agent: Agent, tools: ToolPolicy | None = None) -> Unready | None:
        return self.registry.obstacle(agent, environ=self.place.environ, tools=tools)

    async def why_unable(self, agent: Agent, tools: ToolPolicy | None = None) -> Reason | None:
        obstacle = self.obstacle(agent, tools)
        if obstacle is not None:
            return obstacle.why()
        return await self.why_held(agent) or await self.trees.why_held(agent.name)

    async def why_held(self, agent: Agent) -> Reason | None:
        return await why_held(self.place, self.registry.asked_for(agent), agent.environment)

    async def ways(
        self, agent: Agent, policy: Policy, tools: ToolPolicy | None = None
    ) -> list[Way]:
        if self.accounts is None:
            return [Way(agent)]
        own = agent.definition.policy
        way = Way(agent, await self._account(agent, policy.account or own.account))
        said = policy.otherwise or own.otherwise
        if not said:
            return [way]
        other = await asyncio.to_thread(self._other, agent, said)
        if self.obstacle(other, tools) is not None:
            return [way]
        return [way._replace(has_other=True), Way(other, await self._account(other, ""), said)]

    async def reserve(self, agent: Agent, job: Job, tools: ToolPolicy | None = None) -> Way:
        """Return the way to run an agent; HeldBackError if every account is under a limit."""
        ways, filed = await self.ways(agent, job.filed.policy, tools), job.filed
        if self.accounts is None:
            return ways[0]
        if len(ways) > 1:
            runs = await self.accounts.ledger.runs_of(filed.number)
            last = next((each for each in reversed(runs) if each.process is not None), None)
            is_refused = last is not None and last.reason.code == ReasonCode.PROVIDER_ERROR
            if last is not None and is_refused and "by" not in last.facts:
                ways = ways[1:]
        return await self.accounts.free(ways, filed.number)

    async def _account(self, agent: Agent, login: str) -> str:
        registry = self.registry
        if registry.runner_of(agent) is RunnerKind.MODEL:
            host = urlsplit(registry.provider.url).hostname or registry.provider.url
            return f"{host} ({login})" if login else host
        try:
            secrets = self.place.secrets
            given = await secrets.given(registry.asked_for(agent), agent.environment)
        except SecretError:
            given = Given()
        return programs.account_of(registry.command_of(agent), given.variables, login)

    def _other(self, agent: Agent, said: str) -> Agent:
        assert self.accounts is not None, "without accounts there is no other way"
        own, known = agent.definition, {each.name: each for each in self.accounts.agents()}
        other = known.get(said)
        if other is None:
            kind, command = RunnerKind.COMMAND, tuple(shlex.split(said))
            return replace(agent, definition=replace(own, runner=kind, command=command, model=None))
        its = other.definition
        definition = replace(
            own, runner=its.runner, command=its.command, model=its.model, variables=its.variables
        )
        return replace(
            agent,
            definition=definition,
            variables=other.variables,
            environment=other.environment,
        )

    async def hold(
        self,
        agent: Agent,
        prompt: str,
        *,
        run: Job | Part,
        timeout: timedelta,
        facts: Mapping[str, str] | None = None,
        tools: ToolPolicy | None = None,
        model: str | None = None,
        tree: Tree | None = None,
    ) -> AgentRun:
        obstacle = self.obstacle(agent, tools)
        if obstacle is not None:
            raise RunError(str(obstacle))
        part = run if isinstance(run, Part) else await self._part(run, agent, timeout, tools)
        way = part.way or Way(agent)
        if way.by:
            agent, model = way.agent, None
        policy = agent.policy if tools is None else tools
        tree = tree or await self.take(agent)
        try:
            order = AgentOrder(agent, prompt, model or self.registry.model_of(agent), policy, tree)
            part = part._replace(facts={**part.facts, **(facts or {})})
            spec, part = await self._spec(order, part, timeout)
            how = _Launch(
                programs.Answers.TEXT,
                order.model,
                *way[1:],
                key=tree.key,
                facts=tree.facts(),
                run=part.name or str(part.number),
                is_member=agent.is_member,
                session="" if way.by or not agent.definition.resumes else self._session_file(order),
            )
            live, how = await self._start(order, spec, how)
            return AgentRun(self, live, spec, how, part.balances)
        except BaseException:
            self.release(tree)
            raise

    async def _part(
        self, job: Job, agent: Agent, timeout: timedelta, tools: ToolPolicy | None
    ) -> Part:
        way = await self.reserve(agent, job, tools)
        facts = facts_of(job, self.place, timeout=timeout, api=agent.definition.api)
        idle, directory = job.filed.policy.idle_timeout, self.place.directory_of(job.run)
        return Part(job.run.number, directory, job.balances, way=way, facts=facts, idle=idle)

    async def _spec(self, order: AgentOrder, part: Part, timeout: timedelta) -> tuple[Spec, Part]:
        """Return the spec without its command, and the part with all purses of the agent."""
        agent, model, place = order.agent, order.model, self.place
        given = await place.secrets.given(self.registry.asked_for(agent), agent.environment)
        if model is not None and not programs.is_model(model):
            raise RunError(f"{shown(model)!r} is not a valid model name")
        facts = dict(part.facts)
        if place.spending is not None and (own := place.spending.purses_of(agent)):
            drawn = await place.spending.draw(part.number, own)
            part = part._replace(balances=part.balances + drawn)
            for name, left in left_facts(part.balances).items():
                facts[name] = min(left, facts.get(name, left), key=float)
        spec = Spec(
            run=part.number,
            argv=(),
            cwd=order.tree.path,
            environment={
                **allowed_environment(place.environ),
                **given.variables,
                **facts,
                "HORAE_AGENT": agent.name,
                **({"HORAE_MODEL": model} if model else {}),
                "HORAE_TOOLS": json.dumps(order.policy.data()),
            },
            directory=part.directory,
            timeout=timeout,
            idle=part.idle or agent.definition.policy.idle_timeout,
            secrets=_hidden(place, given),
        )
        return spec, part

    async def _start(self, order: AgentOrder, spec: Spec, how: _Launch) -> tuple[Held, _Launch]:
        agent, directory, prompt_file = order.agent, spec.directory, spec.directory / PROMPT_NAME
        if self.registry.runner_of(agent) is RunnerKind.MODEL:
            called = programs.Called(
                (sys.executable, *MODEL), programs.Answers.MODEL, wants_file=False
            )
            spec = self._model_spec(order, spec)
        else:
            called = programs.call(
                self.registry.command_of(agent),
                model=order.model,
                policy=order.policy,
                work=spec.cwd,
                prompt_file=prompt_file,
                left=spec.environment.get(LEFT, ""),
                session=_Session.read(how.session).id,
            )
            stdin = b"" if called.wants_file else order.text.encode("utf-8", "replace")
            spec = replace(spec, stdin=stdin)
        how = structs.replace(how, answers=called.answers)
        try:
            directory.mkdir(0o700, parents=True, exist_ok=True)
            _remove(directory / RESULT_NAME)
            _write(directory / ANSWER_NAME, encode(how).decode())
            if called.wants_file:
                _write(prompt_file, order.text)
        except OSError as error:
            raise RunError(
                f"{directory}: {error.strerror}; the agent needs a working directory"
            ) from error
        try:
            return await self.processes.hold(replace(spec, argv=called.argv)), how
        except BaseException:
            _remove(prompt_file)
            raise

    def _session_file(self, order: AgentOrder) -> str:
        return str(self.place.data / "trees" / f"{order.tree.key or order.agent.name}~session")

    async def take(self, agent: Agent) -> Tree:
        root, place = self.place.root, self.place.root / agent.directory
        if not place.resolve().is_relative_to(root.resolve()):
            return Tree(place)  # a directory of its own, without a tree
        tree = await self.trees.take(agent.name, is_member=agent.is_member)
        if tree.edits:
            words = "the tree of %s does not have the uncommitted edits of the plan root: %s"
            log.warning(words, agent.name, ", ".join(tree.edits))
        work = tree.path / place.resolve().relative_to(root.resolve())
        work.mkdir(parents=True, exist_ok=True)
        return replace(tree, path=work)

    def release(self, tree: Tree) -> None:
        self.trees.release(tree.key)

    def _model_spec(self, order: AgentOrder, spec: Spec) -> Spec:
        provider, environ = self.registry.provider, self.place.environ
        environment = dict(spec.environment)
        if provider.key in environ and not provider.is_named:
            environment[provider.key] = environ[provider.key]
        hidden = {each.decode("utf-8", "surrogateescape") for each in spec.secrets}
        said = ModelOrder(
            agent=order.agent.name,
            model=order.model or "",
            url=provider.url,
            key=provider.key,
            system=order.agent.definition.prompt,
            prompt=order.prompt,
            tools=order.policy.data(),
            result=str(spec.directory / RESULT_NAME),
            secrets=tuple(name for name, value in environment.items() if value in hidden),
            steps=provider.steps,
            tokens=min(provider.tokens, int(spec.environment.get(LEFT_TOKENS, provider.tokens))),
        )
        return replace(spec, environment=environment, stdin=json.dumps(asdict(said)).encode())

    async def look_back(self, run: Run, agent: Agent | None = None) -> Ended | Unreleased | None:
        directory = self.place.directory_of(run)
        ended = await self.processes.look_back(directory, run.number)
        _remove(directory / PROMPT_NAME)
        if isinstance(ended, Unreleased) or (how := _Launch.read(directory)) is None:
            return ended
        if ended is None:  # its work exists, whatever the outcome
            await self.trees.deliver(how.key, run=how.run, is_member=how.is_member)
            return None
        secrets = () if agent is None else await hidden_of(agent, self.place)
        return (await self.over(ended, directory, how, secrets))[0]

    async def over(
        self,
        ended: Ended,
        directory: Path,
        how: _Launch,
        secrets: tuple[bytes, ...],
    ) -> tuple[Ended, str]:
        """Return the end of a run with all its facts, and the whole answer."""
        try:
            before, code = _Session.read(how.session), ended.exit_code
            result = await asyncio.to_thread(_result, directory, how, secrets, code, before)
            ended = _answered_by(_with_result(ended, result, how), how.by)
            await asyncio.to_thread(_note_session, how.session, ended, result, before)
            made = await self.trees.deliver(how.key, run=how.run, is_member=how.is_member)
        finally:
            self.trees.release(how.key)
        facts = {**ended.facts, **how.facts, **made.facts()}
        return structs.replace(ended, facts=facts), result.text


class _Launch(Struct, frozen=True, omit_defaults=True):
    answers: programs.Answers
    model: str | None = None
    account: str = ""
    by: str = ""
    has_other: bool = False
    key: str = ""  # of its tree; runs of an earlier version have none of the following
    facts: Mapping[str, object] = {}  # of its tree
    run: str = ""
    is_member: bool = False
    session: str = ""  # the file with its program's session, if it resumes one

    @classmethod
    def read(cls, directory: Path) -> _Launch | None:
        try:
            return decode((directory / ANSWER_NAME).read_bytes(), type=cls)
        except (OSError, MsgspecError, RecursionError):
            return None


@dataclass(slots=True, eq=False)
class AgentRun:
    host: AgentHost
    live: Held
    spec: Spec
    how: _Launch
    balances: tuple[Balance, ...] = ()
    answer: str = ""  # after the end, the whole answer
    is_let_go: bool = False

    @property
    def process(self) -> Process:
        return self.live.process

    def go(self) -> None:
        self.is_let_go = True
        self.live.go()

    def cancel(self, reason: str) -> None:
        self.live.cancel(reason)
        if not self.is_let_go:  # then its end may not be awaited
            self.host.trees.release(self.how.key)

    async def ended(self) -> Ended:
        directory, secrets = self.spec.directory, self.spec.secrets
        watching = asyncio.create_task(self._watch()) if self._is_watched else None
        try:
            ended = await self.live.ended()
        finally:
            over = None if watching is None else await _stopped(watching)
        _remove(directory / PROMPT_NAME)
        ended, self.answer = await self.host.over(ended, directory, self.how, secrets)
        if over is not None and ended.outcome is Status.KILLED:
            return structs.replace(ended, reason=Reason(ReasonCode.BUDGET, over.exceeded))
        return ended

    @property
    def _is_watched(self) -> bool:
        is_drawn = bool(self.balances and self.spending)
        return is_drawn and self.how.answers in programs.STREAMS

    @property
    def spending(self) -> Spending | None:
        return self.host.place.spending

    async def _watch(self) -> Balance:
        """Record the usage during the run; end a run that exceeds a purse, and return that."""
        assert self.spending is not None, "it is watched"
        output, meter, at, rest = RunLog(self.spec.directory / LOG_NAME), programs.Meter(), 0, b""
        is_told, named = True, self.how.model or ""
        while True:
            data, at = await asyncio.to_thread(output.read, at)
            lines, _, rest = (rest + data).rpartition(b"\n")
            is_told = not meter.feed(lines.decode("utf-8", "replace")) and is_told
            if not data and not is_told:
                used = usage_of((await asyncio.to_thread(meter.total, named)).facts())
                ahead = await asyncio.to_thread(meter.ahead, named)
                try:
                    over = await self.spending.use(self.spec.run, self.balances, used, ahead)
                except LedgerUnavailableError as error:
                    log.debug("what run %d spends is not recorded yet: %s", self.spec.run, error)
                    over = None
                else:
                    is_told = True
                if over is not None:
                    self.live.cancel(over.exceeded)
                    return over
            if not data:
                await asyncio.sleep(_LOOK)


async def _stopped(watching: asyncio.Task[Balance]) -> Balance | None:
    if not watching.done():
        watching.cancel()
    try:
        return await watching
    except asyncio.CancelledError:
        return None
    except (HoraeError, OSError) as error:
        log.warning("what a run spends during the run is not known: %s", error)
        return None


def _with_result(ended: Ended, result: programs.Result, how: _Launch) -> Ended:
    text = result.text
    text = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    facts = {**ended.facts, **result.facts(), **({"text": text} if text else {})}
    facts |= {name: getattr(how, name) for name in ("account", "by") if getattr(how, name)}
    account, has_other = how.account, how.has_other
    ended = structs.replace(ended, facts=facts, account=account, has_other=has_other)
    if ended.outcome in {Status.KILLED, Status.INTERRUPTED} or not result.is_read:
        return ended
    if result.error:
        fault = result.fault if account or result.fault is Fault.BUDGET else None
        reason, outcome = Reason(_CODES[fault], shown(result.error)), Status.FAILED
        if fault is Fault.BUDGET:
            outcome = Status.KILLED
        elif reason.code in LIMITS:
            outcome = Status.LIMITED
        return structs.replace(ended, outcome=outcome, reason=reason, until=result.resets_at)
    if ended.exit_code != 0:
        return ended
    first = result.text.lstrip()[:1000].partition("\n")[0]
    status, reason = verdict(RunFinish(EndCause.EXIT, code=0, first=first))
    return structs.replace(ended, outcome=status, reason=reason)


def _result(
    directory: Path, how: _Launch, secrets: tuple[bytes, ...], code: int | None, before: _Session
) -> programs.Result:
    is_model = how.answers is programs.Answers.MODEL
    path = directory / (RESULT_NAME if is_model else LOG_NAME)
    data = RunLog(path).last(_LONGEST_RESULT)[0]
    if is_model:
        # It is not masked by the supervisor, and its program knows only its own environment.
        masker = Masker(spellings_of(frozenset(secrets)))
        masked = masker.feed(data) + masker.rest()
        if masked != data:
            _write(path, masked.decode("utf-8", "replace"))
        data = masked
    try:  # a time of day is relative to when it was written
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        at = _EPOCH  # there is no answer, either
    printed = data.decode("utf-8", "replace")
    result = programs.read_answer(printed, how.answers, now=at, code=code)
    if is_model and not result.is_read:
        result = programs.Result()  # a truncated file is no answer
    if how.answers is programs.Answers.CODEX and before.id and result.session == before.id:
        sent, got = result.tokens_in or 0, result.tokens_out or 0  # since the session began
        sent, got = max(0, sent - before.tokens_in), max(0, got - before.tokens_out)
        result = replace(result, tokens_in=sent, tokens_out=got)
    return replace(result, model=result.model or how.model or "").priced()


def _answered_by(ended: Ended, by: str) -> Ended:
    if not by or ended.outcome in BAD | {Status.LIMITED}:
        return ended
    reason = Reason(ended.reason.code, f"{ended.reason} (answered by {shown(by)})")
    return structs.replace(ended, reason=reason)


class _Session(Struct, frozen=True, omit_defaults=True):
    """The session that the next run resumes, and the usage that its program has counted in it."""

    id: str = ""  # empty: a new one begins
    tokens_in: int = 0
    tokens_out: int = 0
    failures: int = 0  # in a row, before the model answered

    @classmethod
    def read(cls, path: str) -> _Session:
        try:
            found = decode(head_of(path, _LONGEST_SESSION, follows_link=False), type=cls)
        except (OSError, MsgspecError):
            return cls()
        return found if programs.is_model(found.id) else cls()  # it becomes a word of a command


def _note_session(path: str, ended: Ended, result: programs.Result, before: _Session) -> None:
    """Store the session that the next run resumes.

    It is dropped if its program no longer knows it, or repeatedly fails in it before the model
    answers, as when it is too long. As the messages for both change between versions, only the
    session and the tokens of the answer decide.
    """
    if not path:
        return
    is_at_fault = ended.outcome is Status.FAILED and result.fault is None
    is_silent = is_at_fault and not (result.tokens_in or result.tokens_out)
    was = before if before.id == result.session else _Session()
    if is_silent and (was.failures + 1 >= _MOST_FAILURES or not was.id):
        _remove(Path(path))
    elif result.session:
        noted = _Session(
            result.session,
            was.tokens_in + (result.tokens_in or 0),
            was.tokens_out + (result.tokens_out or 0),
            was.failures + 1 if is_silent else 0,
        )
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(Path(path), encode(noted).decode())
        except OSError as error:
            log.warning("the next run cannot go on with the session: %s", error)


def _write(path: Path, text: str) -> None:
    with private_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is removed with the directory of the run
        os.remove(path)


@dataclass(eq=False)
class BlockAgents:
    # The agent as it is defined now; None: that of a request.
    find: Callable[[str | None], Awaitable[tuple[AgentHost, Agent]]]
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def why_held(self, plan: Plan) -> str | None:
        for name in {name for _, name in agent_blocks(plan) if name}:
            try:
                host, agent = await self.find(name)
            except AgentNotFoundError:
                continue  # its block reports it
            if (why := await host.why_held(agent)) is not None:
                return f"the agent {name}: {why}"
        return None

    async def reserve(self, plan: Plan, job: Job) -> None:
        for name in {name for _, name in agent_blocks(plan) if name}:
            with suppress(AgentNotFoundError):  # its block reports it
                host, agent = await self.find(name)
                await host.reserve(agent, job)

    async def check(self, name: str) -> None:
        host, agent = await self.find(name)
        obstacle = await host.why_unable(agent)
        if obstacle is not None:
            raise RunError(obstacle)

    async def ask(
        self,
        name: str,
        prompt: str,
        *,
        run: int,
        directory: Path,
        timeout: timedelta,
        facts: Mapping[str, str],
        note: Callable[[Mapping[str, object]], object],
        filed: Filed | None = None,
    ) -> bytes:
        """Return the answer of an agent; one that begins with NO-WORK is not special."""
        await self.check(name)
        host, agent = await self.find(name)
        limit, ways = agent.definition.timeout or timeout, [Way(agent)]
        ended, answer = None, ""
        # An agent has one live run, so blocks take turns.
        async with self._turns.setdefault(name, asyncio.Lock()):
            if filed is not None and host.accounts is not None:
                ways = await host.ways(agent, filed.policy)
                try:
                    first = await host.accounts.free(ways, filed.number)
                except HeldBackError as error:  # a limit that was reached since the run began
                    ended = Ended(Status.LIMITED, error.reason, account=error.account)
                    raise LimitedError(ended) from None
                ways = ways[ways.index(first) :]
            for way in ways:
                part = Part(run, directory, way=way)
                try:
                    held = await host.hold(agent, prompt, run=part, timeout=limit, facts=facts)
                except NoRoomError as error:
                    raise RunError(error.reason) from None
                held.go()
                try:
                    ended = await held.ended()
                except asyncio.CancelledError:
                    held.cancel("the step was stopped")
                    note((await held.ended()).facts)
                    raise
                note(ended.facts)
                answer = held.answer
                if not way.is_over(ended):
                    break
        assert ended is not None, "there is a way"
        if ended.outcome is Status.LIMITED:
            raise LimitedError(ended)
        if ended.outcome not in {Status.DONE, Status.NO_WORK}:
            raise RunError(shown(f"{name}: {ended.reason}", LONGEST_ERROR))
        return answer.encode() + b"\n" if answer else b""


async def hidden_of(agent: Agent, place: RunSettings) -> tuple[bytes, ...]:
    names = (*agent.variables, *agent.definition.variables)
    try:
        given = await place.secrets.given(names, agent.environment)
    except SecretError:
        given = Given(hidden=place.secrets.hidden)
    return _hidden(place, given)


def _hidden(place: RunSettings, given: Given) -> tuple[bytes, ...]:
    # The engine's own secrets are masked, too: an agent of the same user may find them.
    more = {place.signature} - {b""}
    return tuple(sorted(hidden_bytes(given) | guessed_secrets(place.environ) | more))
