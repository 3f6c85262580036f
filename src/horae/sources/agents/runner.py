"""Agents: one registry of them, and one function that runs any of them, `AgentHost.hold`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from horae.core.agent import Agent, AgentNotFoundError, RunnerKind
from horae.core.budget import DOLLAR, LEFT, LEFT_TOKENS, Usage, left_facts
from horae.core.command import Unready
from horae.core.entry import ASKED, REQUEST
from horae.core.headline import agent_blocks
from horae.core.ports import (
    Ended,
    Given,
    LedgerUnavailableError,
    NoRoomError,
    RunError,
    SecretError,
    Unreleased,
)
from horae.core.private import private_file
from horae.core.receipt import EndCause, Reason, ReasonCode, RunFinish, Status, shown, verdict
from horae.core.tool_policy import ToolPolicy, ToolPolicyError, policy_of
from horae.errors import Exit, HoraeError
from horae.process.logs import RunLog
from horae.process.masking import Masker, spellings_of
from horae.process.processes import LOG_NAME, Processes, Spec, guessed_secrets
from horae.process.ready import allowed_environment, unread, why_unready
from horae.process.run_settings import RunSettings, facts_of, hidden_bytes, why_held
from horae.sources.agents import programs
from horae.sources.agents.model import STEPS, TOKENS, MissingExtraError, ModelOrder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
    from datetime import timedelta

    from horae.core.budget import Balance
    from horae.core.entry import Origin
    from horae.core.ports import Held, Job, Process, Run
    from horae.core.spending import Spending
    from horae.org.plan import Plan
    from horae.process.secrets import NamedSecrets

log = logging.getLogger(__name__)

SETTINGS: Final = "set agent.command in horae.toml"
MODEL: Final = ("-I", "-m", "horae.sources.agents.model")
OPENAI: Final = "https://api.openai.com/v1"
LONGEST_TEXT: Final = 8000  # characters of an answer in the record of its run
LONGEST_ERROR: Final = 600  # characters of why an agent block failed
ANSWER_NAME: Final = "answer.json"  # how to read the answer, after a crash
RESULT_NAME: Final = "result.json"  # what the model runner knows at the end
PROMPT_NAME: Final = "prompt.txt"  # the prompt, while a program that wants a file runs

_LONGEST_RESULT: Final = 8 << 20
_LOOK: Final = 0.5  # seconds between two looks at what a run has used


class AgentTwiceError(HoraeError, code="agent_twice", exit_code=Exit.CONFLICT):
    def __init__(self, name: str, first: Origin, second: Origin) -> None:
        self.name, self.first, self.second = name, str(first), str(second)
        super().__init__(
            f"the agent {name} is defined twice, at {first} and at {second}; rename one of them"
        )


@dataclass(frozen=True, slots=True)
class Provider:
    """Where models are called: the address, the variable with its key, the model and the limits."""

    url: str = OPENAI
    key: str = "OPENAI_API_KEY"
    model: str | None = None
    steps: int = STEPS
    tokens: int = TOKENS
    is_named: bool = False  # whether the settings say where that key is


def provider_of(environ: Mapping[str, str], secrets: Collection[str] = ()) -> Provider:
    """Return where models are called; the first key counts that is set, or among the *secrets*.

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
    """The agents, each by its name; `command` gives the command of those that name none."""

    _: KW_ONLY
    command: Callable[[], tuple[str, ...] | None] = lambda: None  # a person may confirm another
    provider: Provider = Provider()
    settings: str = SETTINGS
    root: Path = Path()
    secrets: NamedSecrets | None = None
    _agents: dict[str, Agent] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Agent]:
        return iter(sorted(self._agents.values(), key=lambda agent: agent.name))

    def add(self, agent: Agent, *, environ: Mapping[str, str]) -> Unready | None:
        """Add an agent; return why it cannot run yet. Another one of the same name is refused."""
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
        """Return what runs an agent: as it is defined, else its command, else its model."""
        is_model = agent.definition.model is not None and not self.command_of(agent)
        return agent.definition.runner or (RunnerKind.MODEL if is_model else RunnerKind.COMMAND)

    def model_of(self, agent: Agent) -> str | None:
        is_model = self.runner_of(agent) is RunnerKind.MODEL
        of_provider = self.provider.model if is_model else None
        return agent.definition.model or of_provider

    def asked_for(self, agent: Agent) -> tuple[str, ...]:
        """Return the variables that an agent asks for; a model's key is one, if it is a secret."""
        is_key = self.runner_of(agent) is RunnerKind.MODEL and self.provider.is_named
        key = (self.provider.key,) if is_key else ()
        return (*agent.variables, *agent.definition.variables, *key)

    def obstacle(
        self, agent: Agent, *, environ: Mapping[str, str], tools: ToolPolicy | None = None
    ) -> Unready | None:
        """Return why an agent cannot run; *tools* is a policy that must be kept."""
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
    """A part of a run, with a directory of its own for what it prints."""

    number: int  # of the run
    directory: Path
    balances: tuple[Balance, ...] = ()  # of the purses that it draws on


@dataclass(frozen=True, slots=True)
class AgentHost:
    """What carries runs of agents out: the registry, the processes, and where runs work."""

    registry: Registry
    processes: Processes
    place: RunSettings

    def obstacle(self, agent: Agent, tools: ToolPolicy | None = None) -> Unready | None:
        return self.registry.obstacle(agent, environ=self.place.environ, tools=tools)

    async def why_unable(self, agent: Agent, tools: ToolPolicy | None = None) -> Reason | None:
        obstacle = self.obstacle(agent, tools)
        return obstacle.why() if obstacle is not None else await self.why_held(agent)

    async def why_held(self, agent: Agent) -> Reason | None:
        return await why_held(self.place, self.registry.asked_for(agent), agent.environment)

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
    ) -> AgentRun:
        registry, place, facts = self.registry, self.place, dict(facts or {})
        obstacle = self.obstacle(agent, tools)
        if obstacle is not None:
            raise RunError(str(obstacle))
        given = await place.secrets.given(registry.asked_for(agent), agent.environment)
        wanted = model or registry.model_of(agent)
        if wanted is not None and not programs.is_model(wanted):
            raise RunError(f"{shown(wanted)!r} is not a valid model name")
        if not isinstance(run, Part):
            facts = facts_of(run, place, timeout=timeout, api=agent.definition.api) | facts
            run = Part(run.run.number, place.directory_of(run.run), run.balances)
        balances = run.balances
        if place.spending is not None and (own := place.spending.purses_of(agent)):
            balances += await place.spending.draw(run.number, own)
            left = left_facts(balances)
            facts |= {
                name: min(left[name], facts.get(name, left[name]), key=float) for name in left
            }
        policy = agent.policy if tools is None else tools
        spec = Spec(
            run=run.number,
            argv=(),
            cwd=place.root / agent.directory,
            environment={
                **allowed_environment(place.environ),
                **given.variables,
                **facts,
                "HORAE_AGENT": agent.name,
                **({"HORAE_MODEL": wanted} if wanted else {}),
                "HORAE_TOOLS": json.dumps(policy.data()),
            },
            directory=run.directory,
            timeout=timeout,
            secrets=_hidden(place, given),
        )
        whole = f"{agent.definition.prompt}\n\n{prompt}".strip() + "\n"
        prompt_file = run.directory / PROMPT_NAME
        if registry.runner_of(agent) is RunnerKind.MODEL:
            argv = (sys.executable, *MODEL)
            called = programs.Called(argv, programs.Answers.MODEL, wants_file=False)
            spec = self._model_spec(spec, agent, prompt, policy, wanted or "")
        else:
            command = registry.command_of(agent)
            called = programs.call(
                command,
                model=wanted,
                policy=policy,
                work=spec.cwd,
                prompt_file=prompt_file,
                left=facts.get(LEFT, ""),
            )
            stdin = b"" if called.wants_file else whole.encode("utf-8", "replace")
            spec = replace(spec, stdin=stdin)
        try:
            run.directory.mkdir(0o700, parents=True, exist_ok=True)
            _remove(run.directory / RESULT_NAME)
            how = {"answers": called.answers.value, "model": wanted}
            _write(run.directory / ANSWER_NAME, json.dumps(how))
            if called.wants_file:
                _write(prompt_file, whole)
        except OSError as error:
            raise RunError(
                f"{run.directory}: {error.strerror}; the agent needs a working directory"
            ) from error
        try:
            live = await self.processes.hold(replace(spec, argv=called.argv))
        except BaseException:
            _remove(prompt_file)
            raise
        return AgentRun(live, spec, called, wanted, balances, place.spending)

    def _model_spec(
        self, spec: Spec, agent: Agent, prompt: str, policy: ToolPolicy, model: str
    ) -> Spec:
        provider, environ = self.registry.provider, self.place.environ
        environment = dict(spec.environment)
        if provider.key in environ and not provider.is_named:
            environment[provider.key] = environ[provider.key]
        hidden = {each.decode("utf-8", "surrogateescape") for each in spec.secrets}
        order = ModelOrder(
            agent=agent.name,
            model=model,
            url=provider.url,
            key=provider.key,
            system=agent.definition.prompt,
            prompt=prompt,
            tools=policy.data(),
            result=str(spec.directory / RESULT_NAME),
            secrets=tuple(name for name, value in environment.items() if value in hidden),
            steps=provider.steps,
            tokens=min(provider.tokens, int(spec.environment.get(LEFT_TOKENS, provider.tokens))),
        )
        return replace(spec, environment=environment, stdin=json.dumps(asdict(order)).encode())

    async def look_back(self, run: Run, agent: Agent | None = None) -> Ended | Unreleased | None:
        directory = self.place.directory_of(run)
        ended = await self.processes.look_back(directory, run.number)
        _remove(directory / PROMPT_NAME)
        if ended is None or isinstance(ended, Unreleased):
            return ended
        try:
            said = json.loads((directory / ANSWER_NAME).read_bytes())
            answers, model = programs.Answers(said["answers"]), said.get("model")
        except (OSError, ValueError, RecursionError, TypeError, LookupError):
            return ended
        secrets = () if agent is None else await hidden_of(agent, self.place)
        model = model if isinstance(model, str) else None
        result = await asyncio.to_thread(_result, directory, answers, secrets, model)
        return _with_result(ended, result)


@dataclass(slots=True, eq=False)
class AgentRun:
    live: Held
    spec: Spec
    called: programs.Called
    model: str | None = None
    balances: tuple[Balance, ...] = ()
    spending: Spending | None = None
    used: Usage | None = None  # so far, if it says so while it goes on
    answer: str = ""  # once it has ended, all that the agent answered

    @property
    def process(self) -> Process:
        return self.live.process

    def go(self) -> None:
        self.live.go()

    def cancel(self, reason: str) -> None:
        self.live.cancel(reason)

    async def ended(self) -> Ended:
        directory, answers = self.spec.directory, self.called.answers
        watching = asyncio.create_task(self._watch()) if self._is_watched else None
        try:
            ended = await self.live.ended()
        finally:
            over = None if watching is None else await _stopped(watching)
        _remove(directory / PROMPT_NAME)
        secrets = self.spec.secrets
        result = await asyncio.to_thread(_result, directory, answers, secrets, self.model)
        self.answer = result.text
        if result.cost is None and self.used is not None and self.used.cost is not None:
            result = replace(result, cost=self.used.cost / DOLLAR, is_estimate=True)
        ended = _with_result(ended, result)
        if over is not None and ended.outcome is Status.KILLED:
            return structs.replace(ended, reason=Reason(ReasonCode.BUDGET, _exceeded(over)))
        return ended

    @property
    def _is_watched(self) -> bool:
        return bool(self.balances and self.spending) and self.called.answers in programs.STREAMS

    async def _watch(self) -> Balance:
        """Note what the run uses while it goes on; end it, and return the purse it exceeds."""
        assert self.spending is not None, "it is watched"
        output, meter, at, rest = RunLog(self.spec.directory / LOG_NAME), programs.Meter(), 0, b""
        is_told = True
        while True:
            data, at = await asyncio.to_thread(output.read, at)
            lines, _, rest = (rest + data).rpartition(b"\n")
            is_told = not meter.feed(lines.decode("utf-8", "replace")) and is_told
            if not data and not is_told:
                self.used = await asyncio.to_thread(_used, meter, self.model)
                try:
                    over = await self.spending.use(self.spec.run, self.balances, self.used)
                except LedgerUnavailableError as error:
                    log.debug("what run %d spends is not recorded yet: %s", self.spec.run, error)
                    over = None
                else:
                    is_told = True
                if over is not None:
                    self.live.cancel(_exceeded(over))
                    return over
            if not data:
                await asyncio.sleep(_LOOK)


async def _stopped(watching: asyncio.Task[Balance]) -> Balance | None:
    """Return what a watch has found; its own end is no fault of the run."""
    if not watching.done():
        watching.cancel()
    try:
        return await watching
    except asyncio.CancelledError:
        return None
    except (HoraeError, OSError) as error:
        log.warning("what a run spends during the run is not known: %s", error)
        return None


def _exceeded(over: Balance) -> str:
    spent = over.purse.words(over.spent + over.live)
    return f"the run exceeded the budget {over.purse}: {spent} spent"


def _used(meter: programs.Meter, model: str | None) -> Usage:
    costs = [programs.price(name or model or "", each) for name, each in meter.models().items()]
    known = [each for each in costs if each is not None]
    return Usage(round(sum(known) * DOLLAR) if known else None, meter.tokens)


def _with_result(ended: Ended, result: programs.Result) -> Ended:
    text = result.text
    text = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    facts = {**ended.facts, **result.facts(), **({"text": text} if text else {})}
    ended = structs.replace(ended, facts=facts)
    if ended.outcome in {Status.KILLED, Status.INTERRUPTED} or not result.is_read:
        return ended
    if result.error:
        reason = Reason(ReasonCode.REPORTED, shown(result.error))
        return structs.replace(ended, outcome=Status.FAILED, reason=reason)
    if ended.exit_code != 0:
        return ended
    first = result.text.lstrip()[:1000].partition("\n")[0]
    status, reason = verdict(RunFinish(EndCause.EXIT, code=0, first=first))
    return structs.replace(ended, outcome=status, reason=reason)


def _result(
    directory: Path, answers: programs.Answers, secrets: tuple[bytes, ...], model: str | None
) -> programs.Result:
    is_model = answers is programs.Answers.MODEL
    path = directory / (RESULT_NAME if is_model else LOG_NAME)
    data = RunLog(path).last(_LONGEST_RESULT)[0]
    if is_model:
        # It did not pass the supervisor, and its program knows only its own environment.
        masker = Masker(spellings_of(frozenset(secrets)))
        masked = masker.feed(data) + masker.rest()
        if masked != data:
            _write(path, masked.decode("utf-8", "replace"))
        data = masked
    result = programs.read_answer(data.decode("utf-8", "replace"), answers)
    if is_model and not result.is_read:
        result = programs.Result()  # half of a file is no answer
    return replace(result, model=result.model or model or "").priced()


def _write(path: Path, text: str) -> None:
    with private_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


def _remove(path: Path) -> None:
    with suppress(OSError):  # it goes with the directory of the run
        os.remove(path)


@dataclass(eq=False)
class BlockAgents:
    """Answers to the agent blocks of workflows: each block is a run of the agent it names."""

    # An agent as it is defined now; None is that of a request.
    find: Callable[[str | None], Awaitable[tuple[AgentHost, Agent]]]
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def why_held(self, plan: Plan) -> str | None:
        for name in {name for _, name in agent_blocks(plan) if name}:
            try:
                host, agent = await self.find(name)
            except AgentNotFoundError:
                continue  # its block says so
            if (why := await host.why_held(agent)) is not None:
                return f"the agent {name}: {why}"
        return None

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
    ) -> bytes:
        """Return the answer of an agent; one that begins with NO-WORK is like any other."""
        await self.check(name)
        host, agent = await self.find(name)
        # An agent has one live run, so blocks take turns.
        async with self._turns.setdefault(name, asyncio.Lock()):
            part, limit = Part(run, directory), agent.definition.timeout or timeout
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
        if ended.outcome not in {Status.DONE, Status.NO_WORK}:
            raise RunError(shown(f"{name}: {ended.reason}", LONGEST_ERROR))
        return held.answer.encode() + b"\n" if held.answer else b""


async def hidden_of(agent: Agent, place: RunSettings) -> tuple[bytes, ...]:
    names = (*agent.variables, *agent.definition.variables)
    try:
        given = await place.secrets.given(names, agent.environment)
    except SecretError:
        given = Given(hidden=place.secrets.hidden)
    return _hidden(place, given)


def _hidden(place: RunSettings, given: Given) -> tuple[bytes, ...]:
    # What looks secret of the engine's own, too: an agent of the same user might find it.
    more = {place.signature} - {b""}
    return tuple(sorted(hidden_bytes(given) | guessed_secrets(place.environ) | more))
