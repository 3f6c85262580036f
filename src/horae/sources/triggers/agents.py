"""The agents that triggers start, as requests and files make them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from horae.core.scope import API_FIX, api_scopes
from horae.core.secret import is_own, names_in
from horae.org.plan import is_id
from horae.sources.triggers.approvals import Doorman
from horae.sources.triggers.asking import Asking
from horae.sources.triggers.errors import TriggerConflictError
from horae.sources.triggers.fields import flag
from horae.sources.triggers.ports import AgentCard, agent_id
from horae.sources.triggers.rules import MASK, LifecycleEvent, TriggerError, parse_tools
from horae.sources.triggers.shapes import agent_shape, page_of
from horae.timing.duration import DurationError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT_FIELDS: Final[Mapping[str, type]] = {
    "working_dir": str,
    "user": str,
    "shell": str,
    "interactive": bool,
    "prompt": str,
    "worktree": bool,
    "system_prompt": str,
    "tool_policy": dict,
    "model": str,
    "env": dict,
    "auto_clear_threshold": int,
    "network_policy": str,
    "docker_image": str,
    "extra_mounts": list,
    "resource_limits": dict,
    "additional_dirs": list,
    "rooms": list,
    "command": list,
    "timeout": str,
    "api": str,
}
_KINDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    dict: "an object",
    int: "an integer",
    list: "a list",
    str: "a string",
}
# What is kept because somebody wrote it, and means nothing here.
_UNUSED: Final = (
    "user",
    "shell",
    "interactive",
    "worktree",
    "auto_clear_threshold",
    "network_policy",
    "docker_image",
    "extra_mounts",
    "resource_limits",
    "rooms",
)
_LONGEST_NAME: Final = 50  # of an agent, in the name of a workflow


class Agents(Asking, Doorman):
    """Makes, changes and forgets agents, and tells those who wait for that."""

    async def agents(
        self, *, limit: int | None = None, offset: int | None = None, status: str | None = None
    ) -> dict[str, Any]:
        """Return some agents, newest first."""
        size, start = page_of(limit, offset)
        busy = await self._busy()
        cards = await self._store.agents()
        found = [agent_shape(each, is_busy=each.name in busy) for each in cards]
        found = [each for each in found if status in {None, each["status"]}]
        items = found[start : start + size]
        return {"items": items, "total": len(found), "limit": size, "offset": start}

    async def agent(self, word: str) -> dict[str, Any]:
        """Return one agent, by its id or its name."""
        card = await self.card(word)
        return agent_shape(card, is_busy=card.name in await self._busy())

    async def create_agent(self, data: Mapping[str, Any], *, file: str = "") -> dict[str, Any]:
        """Take in an agent; with only a name it uses the default command, where it was made."""
        card = await self._with_sealed_env(
            await self.with_kept_env(self.judged_card(data, file=file))
        )
        if card.name in self._others() or not await self._store.insert_agent(card):
            await self._drop(_env(card).values())
            raise TriggerConflictError(f"an agent named '{card.name}' already exists")
        await self._tell_agent(card, LifecycleEvent.SESSION_START)
        return {**agent_shape(card), "notes": self._notes(card)}

    async def update_agent(
        self, word: str, data: Mapping[str, Any], *, file: str | None = None
    ) -> dict[str, Any]:
        """Change what is said of an agent; what is null stays as it is."""
        was = await self.card(word)
        given = {name: value for name, value in data.items() if value is not None}
        if isinstance(given.get("env"), dict):
            old = was.config.get("env", {})  # what is shown masked and comes back so is kept
            given["env"] = {
                name: old.get(name, value) if value == MASK else value
                for name, value in given["env"].items()
            }
        if given.get("name", was.name) != was.name:
            raise TriggerError("an agent cannot be renamed; create another one")
        said = {**was.config, "enabled": was.is_enabled, **given, "name": was.name}
        card = replace(self.judged_card(said, file=was.file), created_at=was.created_at)
        card = card if file is None else replace(card, file=file)
        card = await self.with_kept_env(card, was)
        if replace(card, updated_at=was.updated_at) == was:
            return agent_shape(was)
        card = await self._with_sealed_env(card)
        await self._store.change_agent(card)
        await self._drop(_env(was).values(), but=_env(card).values())
        if card.is_enabled != was.is_enabled:
            started, ended = LifecycleEvent.SESSION_START, LifecycleEvent.SESSION_END
            await self._tell_agent(card, started if card.is_enabled else ended)
        await self._release(card.name)
        return {**agent_shape(card), "notes": self._notes(card)}

    async def delete_agent(self, word: str) -> dict[str, Any]:
        """Forget an agent that no workflow starts."""
        card = await self.card(word)
        every = await self._store.of_agent(card.name)
        starts = [each for each in every if each.definition.name != message_name(card.name)]
        if starts:
            names = ", ".join(each.definition.name for each in starts[:5])
            more = f" and {len(starts) - 5} more" if len(starts) > 5 else ""
            reason = f"agent '{card.name}' is used by {names}{more}; delete these workflows first"
            raise TriggerConflictError(reason)
        for each in every:
            await self._store.remove(each.id, now=self._clock.now())
        await self._store.remove_agent(card.name, now=self._clock.now())
        await self._drop(_env(card).values())
        return agent_shape(card)

    async def clear_context(self, word: str) -> dict[str, Any]:
        """Tell those who wait for it that an agent is to forget what it was told."""
        card = await self.card(word)
        await self._tell_agent(card, LifecycleEvent.CONTEXT_CLEAR)
        return {"status": "cleared", "agent_id": card.id}

    def judged_card(self, data: Mapping[str, Any], *, file: str) -> AgentCard:
        """Return the agent that a request makes."""
        name = data.get("name")
        if not isinstance(name, str) or not is_id(name):
            shown = (
                f"{str(name)[:64]!r} is not valid; use letters, digits, '.', '-' and '_'"
                if name
                else "is missing"
            )
            raise TriggerError(f"the agent's name {shown}", field="name")
        # What is empty is as if it were not there, so a file can take something back.
        config = {key: value for key in AGENT_FIELDS if (value := data.get(key))}
        for key, value in config.items():
            if not isinstance(value, AGENT_FIELDS[key]):
                kind = _KINDS[AGENT_FIELDS[key]]
                raise TriggerError(f"{key} must be {kind}", field=key)
        parse_tools(config.get("tool_policy"))
        for key in ("command", "additional_dirs"):
            if not all(isinstance(each, str) and each for each in config.get(key, ())):
                raise TriggerError(f"{key} must be a list of strings", field=key)
        env = config.get("env", {})
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
            raise TriggerError("env must be an object of strings", field="env")
        if own := [name for text in env.values() for name in names_in(text) if is_own(name)]:
            raise TriggerError(
                f"env refers to {own[0]}, which is reserved for the engine", field="env"
            )
        try:
            parse_duration(config.get("timeout", "1h"))
        except DurationError as error:
            raise TriggerError(f"timeout: {error}", field="timeout") from None
        try:
            api_scopes(config.get("api", "read"))
        except ValueError:
            raise TriggerError(f"api {config['api'][:60]!r}: {API_FIX}", field="api") from None
        config.setdefault("working_dir", ".")
        now = self._clock.now()
        is_enabled = flag(data.get("enabled"), "enabled", default=True)
        return AgentCard(name, config, is_enabled, now, now, file)

    async def with_kept_env(self, card: AgentCard, was: AgentCard | None = None) -> AgentCard:
        """Return an agent whose variables are what stands for them, if they are as they were."""
        old = {} if was is None else _env(was)
        return _with_env(card, await self._kept(_env(card), old.values()))

    async def _with_sealed_env(self, card: AgentCard) -> AgentCard:
        """Return an agent as the ledger may hold it: what its variables hold is kept elsewhere."""
        return _with_env(card, await self._keep(_env(card)))

    def _notes(self, card: AgentCard) -> list[str]:
        """Return what somebody should know of an agent that was just made."""
        unused = [name for name in _UNUSED if name in card.config]
        notes = [f"{', '.join(unused)}: stored, but not used by horae"] if unused else []
        obstacle = self.why_unready(card) if card.is_enabled else None
        return notes if obstacle is None else [*notes, f"{obstacle}; until then its runs are held"]


def _env(card: AgentCard) -> Mapping[str, str]:
    env: Mapping[str, str] = card.config.get("env", {})
    return env


def _with_env(card: AgentCard, env: Mapping[str, str]) -> AgentCard:
    return replace(card, config={**card.config, "env": dict(env)}) if env else card


def message_name(agent: str) -> str:
    """Return the name of the workflow that brings messages to an agent.

    >>> message_name("reporter")
    'message-reporter'
    """
    return f"message-{agent if len(agent) <= _LONGEST_NAME else agent_id(agent)}"
