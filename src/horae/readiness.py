"""Whether an entry can run: its command, program, directory, tool policy and agent.

One answer for everybody who asks: `check`, `status`, the making of agents and triggers, and
every request for a run.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from horae.config import settings_hint
from horae.core.command import Unready, call_of
from horae.core.entry import Entry, Origin, Work
from horae.core.ports import RunError
from horae.core.prompt import read_order
from horae.core.tool_policy import ToolPolicyError
from horae.errors import HoraeError
from horae.org.document import read
from horae.process.ready import unread, why_unready
from horae.secrets import secrets_of
from horae.sources.agents.runner import AgentNotFoundError, Registry, provider_of
from horae.sources.crew.roster import Roster
from horae.sources.crew.rules import parse_crew
from horae.sources.triggers.runner import agent_of, policy_for, unnamed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from horae.config import Config
    from horae.core.ports import Listed, Secrets
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.agents.runner import Agent
    from horae.sources.triggers.service import AgentCard


@dataclass(frozen=True, slots=True)
class Readiness:
    """Tells what cannot run on this machine, and why.

    *settings* gives what the settings say of agents now, *registry* also those that plans define,
    which takes longer; *card* gives one that a request or a file of `.agentd` made, and *text*
    what a digest stands for.
    """

    root: Path
    environ: Mapping[str, str]
    settings: Callable[[], Registry]
    registry: Callable[[], Registry]
    card: Callable[[str], Awaitable[AgentCard | None]]
    text: Callable[[str], Awaitable[str | None]]
    secrets: Secrets | None = None  # who knows what they need and may not be there
    manifest: Path | None = None  # relative paths of a crew's members begin beside it
    is_elsewhere: bool = False  # whether runs are made on other machines, too

    async def of_entries(self, entries: Iterable[Listed]) -> dict[int, Unready]:
        """Return which of some entries cannot run, by their numbers."""
        agents = self._read_once()
        found = {}
        for each in entries:
            if isinstance(each.item, Entry):
                why = await self._of_entry(each.item, agents)
                found.update({} if why is None else {each.number: why})
        return found

    async def _of_entry(
        self, entry: Entry, agents: Callable[[], Awaitable[Registry]]
    ) -> Unready | None:
        """Return why an entry cannot run."""
        if self.is_elsewhere or entry.policy.requires:
            return None  # as below
        match entry.work:
            case Work.COMMAND:
                return self.of_headline(await self.text(entry.digest) or "", entry.origin.file)
            case Work.PROMPT:
                order = read_order(await self.text(entry.digest) or "")
                name = next(iter(entry.agents), None)
                return None if name is None else await self._of_name(name, order.enforced, agents)
            case Work.TICK:
                return await self._of_member(await self.text(entry.digest) or "")
            case Work.WORKFLOW:
                for name in entry.agents:
                    if (why := await self._of_name(name, None, agents)) is not None:
                        return why
        return None

    def of_headline(self, text: str, file: str) -> Unready | None:
        """Return why the command of a headline's text cannot run."""
        headlines = read(text).headlines
        try:
            call = call_of(headlines[0].props) if headlines else None
        except HoraeError as error:
            return Unready(str(error), "correct the entry")
        if call is None or not call.argv:
            return None
        beside = (self.root / file).parent
        directory = beside if beside.is_dir() else self.root
        why = why_unready(
            call.argv, directory=directory, environ=self.environ, variables=call.variables
        )
        return why or unread(self.secrets, call.variables)

    async def of_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent cannot run under a policy that must be kept, if there is one."""
        return await self._of_name(name, tools, self._read_once())

    async def _of_name(
        self, name: str, tools: ToolPolicy | None, agents: Callable[[], Awaitable[Registry]]
    ) -> Unready | None:
        card = await self.card(name)
        if card is not None:
            return await asyncio.to_thread(self.of_card, card, tools)
        registry = await agents()
        try:
            agent = registry.get(name)
        except AgentNotFoundError as error:
            return Unready(error.reason, error.fix)
        return self._of_agent(registry, agent, tools)

    def of_card(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent cannot run that a request or a file made."""
        if not card.is_enabled:
            reason = f"the agent {card.name} is disabled"
            return Unready(reason, "enable the agent in its file, or with a request")
        try:
            policy = policy_for(card, tools)
        except (HoraeError, ToolPolicyError) as error:
            return Unready(str(error), "correct its tool policy")
        return self._of_agent(self.settings(), agent_of(card), policy)

    async def _of_member(self, text: str) -> Unready | None:
        """Return why a member of the crew cannot tick."""
        members = parse_crew(text).members
        if not members or self.manifest is None:
            return None
        try:
            agent = await asyncio.to_thread(Roster(self.manifest).agent, members[0])
        except RunError as error:
            return Unready(error.reason, "correct its definition")
        return self._of_agent(self.settings(), agent, None)

    def of_nobody(self) -> Unready | None:
        """Return why an agent cannot run that is made for one request."""
        return self._of_agent(self.settings(), unnamed(Origin("request", 1)), None)

    def _of_agent(
        self, registry: Registry, agent: Agent, tools: ToolPolicy | None
    ) -> Unready | None:
        if self.is_elsewhere and registry.command_of(agent):
            return None  # only the machine that it runs on can tell
        return registry.obstacle(agent, environ=self.environ, tools=tools)

    def _read_once(self) -> Callable[[], Awaitable[Registry]]:
        """Return who gives the agents that plans define, which are read when first asked for."""
        known: list[Registry] = []

        async def read_them() -> Registry:
            if not known:
                known.append(await asyncio.to_thread(self.registry))
            return known[0]

        return read_them


# What the settings say


def readiness_of(
    config: Config,
    *,
    card: Callable[[str], Awaitable[AgentCard | None]],
    text: Callable[[str], Awaitable[str | None]],
) -> Readiness:
    """Return who tells what cannot run, as the settings say."""
    manifest = config.crew_def or config.keeper_def
    return Readiness(
        Path(config.root).absolute(),
        os.environ,
        lambda: registry_of(config),
        lambda: agents_of(config),
        card,
        text,
        secrets_of(config),
        None if manifest is None else manifest.absolute(),
        is_elsewhere=config.store is not None,
    )


def agents_of(config: Config) -> Registry:
    """Return the agents that plans and settings define, as they are written now."""
    from horae.cli.output import Form, Output
    from horae.sources.agents.commands import Found

    # What is odd in them is said by `check`, and by whatever needs them.
    return Found.of(config, Output(Form.TABLE), says=False).registry


def registry_of(config: Config) -> Registry:
    """Return where agents are known, and what runs those that name no command."""
    return Registry(
        command=lambda: config.agent_command,
        provider=provider_of(os.environ, config.secrets),
        settings=settings_hint(config.root),
        root=Path(config.root).absolute(),
        secrets=secrets_of(config),
    )
