"""The people of a simulated world: they write, break, move and revert plans, and ask for things."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from horae.core.entry import CronRule, Entry, RepeaterRule
from horae.core.ports import LedgerBusyError, LedgerWriteError
from horae.core.project import decided, project
from horae.core.receipt import HELD_BACK, Reason, ReasonCode, Receipt, Status
from simulate.faults import Fault
from simulate.invent import workflow
from simulate.loop import LIFE
from simulate.runner import Stage
from simulate.sources import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from horae.core.engine import Engine
    from horae.core.ports import Ledger
    from simulate.runner import Child
    from simulate.world import World

_MOST: Final = 25  # moments in a backfill
_ASKED: Final = Reason(ReasonCode.REQUESTED, "requested")
_BACKFILL: Final = Reason(ReasonCode.BACKFILL, "a backfill")


class People:
    """Everybody who does something to a world, and what they did is in its trace."""

    def __init__(self, world: World, roll: Random) -> None:
        self._world = world
        self._roll = roll
        self._plans = world.written.plans
        self._count = 0
        self._deeds: dict[Fault, Callable[[], None]] = {
            Fault.ADD: self._add,
            Fault.CHANGE: self._change,
            Fault.REMOVE: self._remove,
            Fault.BREAK: self._break,
            Fault.MOVE: self._move,
            Fault.RETITLE: self._retitle,
            Fault.REVERT: self._revert,
            Fault.DELAY: self._delay,
            Fault.PAUSE: self._pause,
            Fault.ASK: self._ask,
            Fault.BACKFILL: self._backfill,
            Fault.RELEASE: self.release,
            Fault.APPROVE: self._approve,
        }

    def can(self, fault: Fault) -> bool:
        return fault in self._deeds

    def act(self, fault: Fault) -> None:
        self._deeds[fault]()

    # Plans

    def _add(self) -> None:
        if len(self._sections()) < 10:
            file = self._file()
            text = workflow(self._roll, f"Task {self._next()}", start=self._world.clock.now())
            self._save(file, self._plans.files.get(file, "") + text, "add")

    def _change(self) -> None:
        if (found := self._section()) is not None:
            file, section = found
            title = section.partition("\n")[0].removeprefix("* ").removesuffix(" :workflow:")
            text = workflow(self._roll, title, start=self._world.clock.now())
            if ":ID:" in section and ":ID:" not in text:
                return
            self._save(file, self._plans.files[file].replace(section, text), "change")

    def _remove(self) -> None:
        if (found := self._section()) is not None and len(self._sections()) > 2:
            file, section = found
            self._save(file, self._plans.files[file].replace(section, ""), "remove")

    def _break(self) -> None:
        file = self._file()
        if file in self._plans.files and file not in self._plans.broken:
            self._plans.broken[file] = None
            self._world.tell(f"user: {file} becomes unreadable")
            self._world.request("org")
            self._world.loop.call_later(self._roll.choice((5, 60, 2000)), self._mend, file)

    def _mend(self, file: str) -> None:
        self._plans.broken.pop(file, None)
        self._world.tell(f"user: {file} is readable again")
        self._world.request("org")

    def _move(self) -> None:
        if (found := self._section()) is not None:
            file, section = found
            target = self._file()
            if target != file and file not in self._plans.broken:
                self._save(file, self._plans.files[file].replace(section, ""), "move from")
                self._save(target, self._plans.files.get(target, "") + section, "move to")

    def _retitle(self) -> None:
        if (found := self._section()) is not None:
            file, section = found
            line, rest = section.split("\n", 1)
            text = f"* Task {self._next()} :workflow:\n{rest}"
            self._save(file, self._plans.files[file].replace(f"{line}\n{rest}", text), "retitle")

    def _revert(self) -> None:
        if self._plans.past:
            self._plans.files = dict(self._roll.choice(self._plans.past))
            self._world.tell("user: restore earlier plans")
            self._world.request("org")

    def _delay(self) -> None:
        triggers = self._world.written.triggers
        done = [each for each in triggers.values() if not each.is_enabled]
        when = self._world.clock.now() + timedelta(seconds=self._roll.randint(-3600, 90_000))
        when = when.replace(microsecond=0)
        if done and self._roll.random() < 0.5:
            again = self._roll.choice(done)
            again.when, again.times, again.is_enabled = when, again.times + 1, True
            self._world.tell(f"user: enable {again.name} again, for {when}")
        else:
            name = f"d{self._next()}"
            triggers[name] = Trigger(name, when, self._roll.choice(("wren", "moss", "fern")))
            self._world.tell(f"user: set the delay {name} for {when}")
        self._world.request("trigger")

    def _save(self, file: str, text: str, what: str) -> None:
        self._plans.write(file, text)
        self._world.tell(f"user: {what} {file}")
        self._world.request("org")

    def _file(self) -> str:
        return self._roll.choice(("garden.org", "house.org", "work.org", "new.org"))

    def _sections(self) -> list[tuple[str, str]]:
        return [
            (file, f"* {part}")
            for file, text in sorted(self._plans.files.items())
            for part in f"\n{text}".split("\n* ")[1:]
        ]

    def _section(self) -> tuple[str, str] | None:
        """Return a workflow, and the file that it stands in."""
        sections = self._sections()
        if not sections:
            return None
        file, section = self._roll.choice(sections)
        return file, section if section.endswith("\n") else f"{section}\n"

    def _next(self) -> int:
        self._count += 1
        return 100 + self._count

    # Requests, which need an engine that is up

    def _pause(self) -> None:
        self._world.visit(self._pausing)

    def _ask(self) -> None:
        self._world.visit(self._asking)

    def _backfill(self) -> None:
        self._world.visit(self._backfilling)

    def release(self) -> None:
        """Do what runs were held back for."""
        self._world.visit(self._releasing)

    def _approve(self) -> None:
        self._world.visit(self._approving)

    def ride(self, parent: Child) -> None:
        """Ask for a run inside a run, which waits for it."""
        self._world.visit(lambda ledger, engine: self._riding(ledger, engine, parent))

    async def _releasing(self, ledger: Ledger, engine: Engine) -> None:
        """Let try again what was held back."""
        page = await ledger.receipts(statuses=(Status.HELD,), limit=1000)
        for filed in page.receipts:
            if filed.receipt.reason.code in HELD_BACK:
                self._world.tell(f"user: fix what holds {filed.number}")
                now = self._world.clock.now()
                reason = Reason(ReasonCode.RETRY_REQUESTED, "released by the user")
                if await ledger.release(filed.number, reason=reason, now=now, term=_term()):
                    self._world.watch.seen["released"] += 1
        engine.note_change()

    async def _approving(self, ledger: Ledger, engine: Engine) -> None:
        asked = list(self._world.asked)
        if not asked:
            return
        number, now = self._roll.choice(asked), self._world.clock.now()
        self._world.tell(f"user: approve {number}")
        self._world.approved[number] = None
        reason = Reason(ReasonCode.APPROVED, "approved")
        if await ledger.release(number, reason=reason, now=now, term=_term()):
            self._world.watch.seen["approved"] += 1
        engine.note_change()

    async def _riding(self, ledger: Ledger, engine: Engine, parent: Child) -> None:
        """Ask for a run from inside a run."""
        known = [each for each in await ledger.entries() if each.is_armed]
        if not known or parent.stage is not Stage.LIVE:
            return
        entry, key = self._roll.choice(known).number, f"manual:{self._next()}"
        self._world.tell(f"run {parent.run.number} requests {entry} as {key}")
        now, inside = self._world.clock.now(), parent.filed.number
        receipt = Receipt(key, Status.WAITING, _ASKED, now, now)
        filed = await ledger.add(entry, [receipt], now=now, term=_term(), parent=inside)
        parent.riders += [each.number for each in filed]
        engine.offer([each for each in filed if each.status is Status.WAITING])

    async def _pausing(self, ledger: Ledger, engine: Engine) -> None:
        """Pause an entry, or let one go on that rests."""
        known = [each for each in await ledger.entries() if each.gone_at is None]
        if not known:
            return
        chosen, now = self._roll.choice(known), self._world.clock.now()
        if chosen.pause is not None:
            self._world.tell(f"user: resume {chosen.number}")
            await ledger.resume(chosen.number, now=now, term=_term())
        else:
            hours = self._roll.choice((None, None, 1, 30, 300))
            until = None if hours is None else now + timedelta(hours=hours)
            self._world.tell(f"user: pause {chosen.number} until {until}")
            await ledger.pause(
                chosen.number, now=now, term=_term(), note="paused by the user", until=until
            )
        engine.note_change()

    async def _asking(self, ledger: Ledger, engine: Engine) -> None:
        """Ask for a run now; if the answer is not heard, ask again by the same name."""
        known = [each for each in await ledger.entries() if each.is_armed]
        if not known:
            return
        entry, key = self._roll.choice(known).number, f"manual:{self._next()}"
        self._world.tell(f"user: run {entry} as {key}")
        for is_last in (False, False, True):
            now = self._world.clock.now()
            receipt = Receipt(key, Status.WAITING, _ASKED, now, now)
            try:
                filed = await ledger.add(entry, [receipt], now=now, term=_term())
            except (LedgerBusyError, LedgerWriteError):
                if is_last:
                    raise
                await asyncio.sleep(1)
            else:
                engine.offer([each for each in filed if each.status is Status.WAITING])
                return

    async def _backfilling(self, ledger: Ledger, engine: Engine) -> None:
        """Ask for runs of moments that are past."""
        known = [
            each.item
            for each in await ledger.entries()
            if each.is_armed
            and isinstance(each.item, Entry)
            and isinstance(each.item.rule, CronRule | RepeaterRule)
        ]
        if not known:
            return
        entry, now = self._roll.choice(known), self._world.clock.now()
        since = now - timedelta(days=self._roll.choice((1, 10, 40)))
        moments = list(decided(project(entry, since, now)))[-_MOST:]
        name = self._next()
        self._world.tell(f"user: backfill {entry.number} with {len(moments)} times")
        asked = [
            Receipt(f"backfill:{name}:{each.key}", Status.WAITING, _BACKFILL, each.at, now)
            for each in moments
        ]
        filed = await ledger.add(entry.number, asked, now=now, term=_term())
        engine.offer([each for each in filed if each.status is Status.WAITING])


def _term() -> int:
    life = LIFE.get()
    assert life is not None, "people ask an engine"
    return life.term
