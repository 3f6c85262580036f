"""Triggers and agents for commands.

The service of triggers goes through the engine that runs, else it is in process.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from horae.cli import output
from horae.cli.connection import CommandClock, Place, T, ask, context_of, through, write_with
from horae.client import Client
from horae.config import secrets_of
from horae.context import find_agents
from horae.core.agent import Agent, AgentNotFoundError
from horae.core.entry import KEEPER
from horae.errors import Exit, HoraeError
from horae.org.plan import Diagnostic
from horae.sources.triggers.client import AsyncTriggerClient
from horae.sources.triggers.files import apply_files
from horae.sources.triggers.rules import parse_tools
from horae.sources.triggers.runner import agent_of
from horae.sources.triggers.service import TriggerConflictError, Triggers
from horae.sources.triggers.source import unread_hint
from horae.store.ledger import SqlLedger

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.agents.runner import Registry
    from horae.sources.triggers.files import DefinitionFile
    from horae.sources.triggers.store import AgentCard
    from horae.sources.triggers.views import FileChange


AnyTriggers: TypeAlias = Triggers | AsyncTriggerClient  # of a ledger, or of its engine
_DEFINITION: Final = ("what", "file", "said", "places")


class TriggerAccess:
    def __init__(self, *, root: str, data: str | None) -> None:
        self.root = root
        self.place = Place.of(root=root, data=data)

    def read(self, work: Callable[[AnyTriggers], Awaitable[T]]) -> T:
        if self.place.server is not None:
            return through(self.place.server, lambda engine: work(engine.triggers))
        return self.read_ledger(work)

    def read_ledger(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        return ask(
            self.place,
            lambda ledger: work(Triggers(**self._parts(ledger, may_call=False))),
            or_empty=True,
        )

    def write(
        self,
        work: Callable[[AnyTriggers], Awaitable[T]],
        *,
        is_change: Callable[[T], bool] = lambda _: True,
    ) -> T:
        is_alone = False

        def by_engine(client: Client) -> T:
            return through(client, lambda engine: work(engine.triggers))

        async def alone(ledger: SqlLedger) -> T:
            nonlocal is_alone
            is_alone = self.place.store is None
            return await work(Triggers(**self._parts(ledger)))

        done = write_with(self.place, by_engine, alone)
        if is_alone and is_change(done):
            later = "this takes effect at the next `horae up`"
            output.echo(f"horae: no engine is running; {later}", err=True)
        return done

    def apply(
        self, files: Sequence[DefinitionFile], *, dry_run: bool, teardown: bool
    ) -> list[FileChange]:
        async def change(triggers: AnyTriggers) -> list[FileChange]:
            how = {"dry_run": dry_run, "teardown": teardown}
            if isinstance(triggers, Triggers):
                return await apply_files(triggers, files, **how)
            sent = [{name: getattr(each, name) for name in _DEFINITION} for each in files]
            for each in sent if self.place.server else ():
                if each["said"].get("working_dir") == os.path.abspath(self.root):
                    # The plan root, which is another one there.
                    each["said"] = {**each["said"], "working_dir": "."}
            return await triggers.apply(sent, **how)

        if dry_run:
            return self.read(change)
        return self.write(change, is_change=lambda made: any(each.is_change for each in made))

    def _parts(self, ledger: SqlLedger, *, may_call: bool = True) -> dict[str, Any]:
        context = context_of(ledger, self.place, CommandClock())
        secrets = secrets_of(self.place.config, may_call=may_call)
        return context.trigger_parts(others=lambda: self._names, secrets=secrets)

    @cached_property
    def _names(self) -> frozenset[str]:
        found = find_agents(self.place.config, say=output.Output(output.Form.TABLE).say)
        return frozenset(each.name for each in found.registry)


@dataclass(frozen=True, slots=True)
class KnownAgent:
    agent: Agent
    card: AgentCard | None = None
    why: Unready | None = None  # why a card, or a member without a definition, cannot run

    @property
    def where(self) -> str | None:
        return self.agent.origin.place if self.card is None else self.card.file or None

    @property
    def policy(self) -> ToolPolicy:
        card = self.card
        return self.agent.policy if card is None else parse_tools(card.config.get("tool_policy"))

    def obstacle(self, registry: Registry) -> Unready | None:
        if self.card is not None or self.why is not None:
            return self.why
        return registry.obstacle(self.agent, environ=os.environ)


class Everybody:
    def __init__(self, root: str, data: str | None, screen: output.Output) -> None:
        access = TriggerAccess(root=root, data=data)
        self._root, self._screen, config = root, screen, access.place.config
        self._problems: list[HoraeError] = []
        self._findings: list[Diagnostic] = []  # of the manifest, which `check` reports

        def keep(problem: HoraeError | Diagnostic) -> None:
            if isinstance(problem, HoraeError):
                self._problems.append(problem)
            else:
                self._findings.append(problem)

        found = find_agents(config, say=keep)
        self.registry, self._keeper = found.registry, found.keeper
        unread = (KnownAgent(each, why=why) for each, why in found.unread)
        self.known = [*map(KnownAgent, found.registry), *unread]
        if config.store is not None or config.data.exists():  # else nobody ever asked for one
            try:
                for card, why in access.read_ledger(_cards):
                    made = KnownAgent(agent_of(card), card, why)
                    for other in self.known:
                        if other.agent.name == card.name:
                            reason = (
                                f"the agent {card.name} is defined twice, at {other.where} and by "
                                f"{made.where or 'a request'}; rename one of them"
                            )
                            own: dict[str, Any] = {"code": TriggerConflictError.code}
                            own |= {"exit_code": Exit.CONFLICT, "name": card.name}
                            self._problems.append(HoraeError(reason, **own))
                    self.known.append(made)
            except HoraeError as error:
                self._problems.append(error)
        self.known.sort(key=lambda known: known.agent.name)

    def say_problems(self) -> int:
        """Print why agents may be missing in the list, and return the exit code."""
        for each in self._problems:
            self._screen.say(each)
        return self._problems[0].exit_code if self._problems else Exit.OK

    @property
    def hint(self) -> str:
        """What an empty list adds."""
        return "" if self.known else unread_hint(self._root)

    def get(self, name: str) -> KnownAgent:
        """Return the agent of a name, or the single keeper; of two of one name that of the plan."""
        for asked in [name, self._keeper] if name == KEEPER else [name]:
            for each in self.known:
                if each.agent.name == asked:
                    for problem in self._problems:
                        if getattr(problem, "name", None) == asked:  # it is defined twice
                            self._screen.say(problem)
                    return each
        for finding in self._findings:
            self._screen.say(finding)
        self.say_problems()
        raise AgentNotFoundError.among(name, (each.agent.name for each in self.known))


async def _cards(triggers: Triggers) -> list[tuple[AgentCard, Unready | None]]:
    return [(each, triggers.why_unready(each)) for each in await triggers.store.agents()]
