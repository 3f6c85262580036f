"""Guarded settings of a running engine, and their confirmation by a person."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.config import (
    SECRETS,
    SETTINGS,
    Config,
    SettingError,
    TrustReport,
    WaitingSettings,
    confirm,
    guarded_in,
    load,
    outdated_words,
    untrusted,
)
from horae.core.actor import actor_words, current_actor
from horae.core.guarded import FILE, after_pull, before_pull
from horae.errors import Exit, HoraeError
from horae.files.git.arrivals import ArrivalsError, arrivals_at, remember
from horae.files.git.calls import GitError
from horae.files.git.trees import Commits

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.core.ports import Clock, Ledger

PULLING: Final = timedelta(seconds=10)  # so long git may have files of a commit it is not yet at


class TrustError(HoraeError, code="settings_trust", exit_code=Exit.UNAUTHORISED):
    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor_words(actor)} cannot confirm settings; only a user can")


@dataclass(eq=False)
class EngineSettings:
    """What counts of the `horae.toml` of a running engine; `notes` say what does not yet."""

    config: Config
    ledger: Ledger
    clock: Clock
    term: int
    changed: Callable[[], None]
    notes: tuple[str, ...] = ()
    _edited: dict[str, timedelta] = field(default_factory=dict)  # since when, if in no commit

    async def look(self) -> WaitingSettings:
        return await asyncio.to_thread(untrusted, self.config)

    async def trust(self, digest: str) -> TrustReport:
        actor = current_actor()
        if actor.startswith("agent:"):
            raise TrustError(actor)
        found = await asyncio.to_thread(confirm, self.config, digest)
        await self.refresh()
        self.changed()
        names = [each.name for each in found.waiting]
        hot = (*(each.name for each in SETTINGS if each.is_hot), f"{SECRETS}.")
        facts = {"settings": names, "commits": [*filter(None, (e.commit for e in found.waiting))]}
        if names:
            now = self.clock.now()
            await self.ledger.note("settings_trusted", now=now, term=self.term, facts=facts)
        cold = tuple(name for name in names if not name.startswith(hot))
        return TrustReport(found.digest, found.waiting, cold, self._is_clone)

    async def refresh(self) -> list[str]:
        own = self.config if self._is_clone else None
        try:
            written = await asyncio.to_thread(load, self.config.root, own=own)  # raises an error
            found = await asyncio.to_thread(untrusted, self.config)
            if await self._came_with_commit(found):
                found = await asyncio.to_thread(untrusted, self.config)
            said = [str(each) for each in found.waiting]
            waiting = {each.name for each in found.waiting}
            outdated = [each for each in self.config.outdated(written) if each[0] not in waiting]
            said += [outdated_words(*each) for each in outdated]
        except (SettingError, ArrivalsError) as error:  # half an edit, perhaps
            said = [f"{error}; the engine keeps the settings that it started with"]
        before, self.notes = self.notes, tuple(f"settings: {each}" for each in said)
        return [each for each in self.notes if each not in before]

    @property
    def _is_clone(self) -> bool:
        return self.config.home != self.config.root

    async def _came_with_commit(self, found: WaitingSettings) -> bool:
        unknown = [each for each in found.waiting if not each.commit]
        if not unknown or self._is_clone:
            return False
        root = self.config.root
        try:
            local = tuple(self.config.git_local or ())
            revision = await Commits(Path(root).resolve(), local).of([FILE])
        except (GitError, OSError):
            revision = None
        if revision is None or FILE not in (revision.files or ()):
            self._edited.setdefault(found.digest, self.clock.elapsed())
            return False
        since = self._edited.get(found.digest)
        if since is not None and self.clock.elapsed() - since > PULLING:
            return False
        known = await asyncio.to_thread(arrivals_at, root)
        written = await asyncio.to_thread(guarded_in, self.config)
        if untrusted(self.config, written).digest != found.digest:  # it changed meanwhile
            return False
        noted = before_pull(self.config.trusted, written, known, revision.commit)
        await asyncio.to_thread(remember, root, after_pull(noted, written))
        return True
