"""What people want: that something rests, goes on, runs, ticks, ends, or is folded away."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from horae.core.actor import by_words, one_line
from horae.core.decide import Decision, Receipt, Status
from horae.core.entry import CadenceRule, Entry, key_time
from horae.core.explain import rest_words
from horae.core.ports import Step, Trait
from horae.core.reason import Reason, ReasonCode
from horae.core.receipt import OPEN
from horae.core.service.base import BATCH, GOING
from horae.core.service.errors import CannotRunError, EntryStateError, RequestError, RunStateError
from horae.core.service.looking import Looking, waiting_words
from horae.core.service.shapes import Cancelled, Rest
from horae.core.text import moment_text
from horae.sources.crew.lifecycle import Rhythm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from horae.core.ports import Filed, Listed, Pruned
    from horae.core.service.shapes import Line

_TICK: Final = "tick:"
_TRIES: Final = 5  # at an entry that somebody else decides about at the same moment


class Asking(Looking):
    """Files what people ask for, one thing at a time."""

    async def pause(
        self, word: str, *, note: str = "", until: datetime | timedelta | None = None
    ) -> Rest:
        """Let an entry rest, for ever, until a moment, or for a while."""
        now, note = self._clock.now(), one_line(note)
        found = await self.named(word)
        end = now + until if isinstance(until, timedelta) else until
        if end is not None and end <= now:
            raise RequestError(f"{moment_text(end, self._zone_of(found))} is in the past")
        done = await self._ledger.pause(
            found.number, now=now, term=self._term, note=note, until=end
        )
        if done:
            self._poke()
            return Rest(await self._again(found), changed=True)
        refuse_gone(found)
        if note or end is not None:
            reason = f"the entry is already paused{rest_words(found)}"
            raise EntryStateError(found, reason, remedy="resume it before you pause it again")
        return Rest(await self._again(found), changed=False)

    async def resume(self, word: str) -> Rest:
        """Let a resting entry go on from now."""
        found = await self.named(word)
        done = await self._ledger.resume(found.number, now=self._clock.now(), term=self._term)
        if done:
            self._poke()
        else:
            refuse_gone(found)
        return Rest(await self._again(found), changed=done)

    async def run_now(
        self,
        word: str,
        *,
        note: str = "",
        parent: int | None = None,
        parent_run: int | None = None,
        idempotency_key: str | None = None,
    ) -> Line:
        """Ask for a run now, beside the plan; the same key gives the same receipt back.

        What is asked for inside a run rides in that run's slot as long as it goes on: *parent*
        is its receipt, or *parent_run* its number.
        """
        now = self._clock.now()
        found = await self.named(word)
        if parent_run is not None:
            inside = (await self.run(parent_run)).run
            parent = inside.receipt if inside.ended_at is None else None
        if idempotency_key is None:
            key = f"manual:{self._ids()}"
        else:
            key = f"idem:{checked(idempotency_key, 'an Idempotency-Key')}"
        await self._refuse_unready(found)
        reason = Reason(ReasonCode.REQUESTED, by_words("requested", note))
        asked = Receipt(key, Status.WAITING, reason, now, now)
        [line] = await self._file(found, [asked], now=now, parent=parent)
        return line

    async def tick(self, word: str, *, note: str = "") -> Line:
        """Let an agent tick now instead of at its next moment, which follows from this one's end.

        A tick that waits already is the one that was asked for; one that is held may start.
        """
        found = await self._agent(word) or await self.named(word)
        await self._refuse_unready(found)
        for _ in range(_TRIES):
            now = self._clock.now()
            entry = _agent_of(found)
            going = await self._pending_tick(found)
            if going is not None:
                self._poke()
                return self._line(going, found)
            step = _tick_now(entry, now=now, note=note)
            filed = await self._ledger.decide([step], now=now, term=self._term)
            if filed:
                self._poke()
                return self._line(filed[0], found)
            found = await self._ledger.entry(found.number) or found
        raise EntryStateError(found, "the next tick is being scheduled", remedy="try again")

    async def cancel(
        self, number: int, *, end: Callable[[int, Reason], bool], reason: str = ""
    ) -> Cancelled:
        """Let a run end that goes on; *end* does so to a receipt's, and False is nothing new."""
        asked = await self.run(number)
        said = Reason(ReasonCode.CANCELLED, by_words("cancelled", reason))
        changed = asked.run.ended_at is None and end(asked.run.receipt, said)
        again = asked if changed else await self.run(number)
        if again.run.ended_at is not None:
            ended = moment_text(again.run.ended_at, again.line.zone)
            waits = waiting_words(again.line.filed, again.line.zone)
            raise RunStateError(again.line.title, f"run {number} already ended at {ended}{waits}")
        return Cancelled(again, changed)

    async def note_edit(self, file: str, what: str) -> None:
        """Record what was done to a file on somebody's behalf."""
        facts = {"file": file, "what": what}
        await self._ledger.note("edited", now=self._clock.now(), term=self._term, facts=facts)

    async def prune(self, *, before: datetime, dry_run: bool = False) -> Pruned:
        """Fold old receipts into ranges and drop what hangs on them."""
        now = self._clock.now()
        if before > now:
            raise RequestError(f"{key_time(before)} is in the future; prune needs a past time")
        return await self._ledger.prune(before=before, now=now, term=self._term, dry_run=dry_run)

    async def _refuse_unready(self, found: Listed) -> None:
        """Raise an error for an entry whose run could not start: it would wait for nothing."""
        self._refuse_start()
        why = {} if self._unready is None else await self._unready([found])
        if found.number in why and found.is_armed:
            raise CannotRunError(found.mark.title, why[found.number])

    async def _file(
        self,
        found: Listed,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        parent: int | None = None,
    ) -> list[Line]:
        """File what was asked for, or say why the entry cannot do it."""
        await self._refuse_double(found)
        filed = await self._ledger.add(
            found.number, receipts, now=now, term=self._term, parent=parent
        )
        if len(filed) < len(receipts):
            again = await self._ledger.entry(found.number) or found
            armed(again)
            refuse_rest(again, is_sure=True)
        self._poke()
        return [self._line(each, found) for each in filed]

    async def _agent(self, word: str) -> Listed | None:
        """Return the agent of a name, also if a workflow has the same title."""
        crew = await self._ledger.entries_that_are(Trait.AGENT, limit=BATCH)
        address = f"agent:{word}"
        found = (each for each in crew if word == each.mark.title or address == each.mark.address)
        return next(found, None)

    async def _pending_tick(self, found: Listed) -> Filed | None:
        """Return the tick of an agent that waits; one that runs is an error."""
        page = await self._ledger.receipts(entry=found.number, statuses=OPEN, limit=BATCH)
        for each in page.receipts:
            if not each.receipt.key.startswith(_TICK):
                continue
            if each.status in GOING:
                since = moment_text(each.receipt.start_at, self._zone_of(found))
                runs = [run.number for run in await self._ledger.runs_of(each.number)]
                reason = f"a tick has been running since {since}; see `horae logs`"
                raise RunStateError(found.mark.title, reason, runs=runs[-1:])
            if each.status is Status.HELD:
                now = self._clock.now()
                why = Reason(ReasonCode.RETRY_REQUESTED, by_words("retry requested"))
                await self._ledger.release(each.number, reason=why, now=now, term=self._term)
            return await self._ledger.receipt(each.number)
        return None


def _agent_of(found: Listed) -> Entry:
    entry = armed(found)
    if not isinstance(entry.rule, CadenceRule):
        remedy = f"start a run with `horae run {found.number}`"
        raise EntryStateError(found, "the entry is not an agent that ticks", remedy=remedy)
    refuse_rest(found)
    return entry


def _tick_now(entry: Entry, *, now: datetime, note: str) -> Step:
    """Return the decision that an agent's next tick is now.

    It is filed as if its time had come: nothing else is pending until it has ended.
    """
    rule = entry.rule
    assert isinstance(rule, CadenceRule), "only a cadence ticks"
    reason = Reason(ReasonCode.REQUESTED, by_words("requested", note))
    asked = Receipt(f"{_TICK}{rule.ticks + 1}", Status.WAITING, reason, now, now)
    ended_at = now - Rhythm(rule.streak, rule.failures).delay(rule.base)
    if entry.ended_at is not None:
        ended_at = min(ended_at, entry.ended_at)
    since = now if entry.accounted_to is None else max(now, entry.accounted_to)
    due = replace(entry, rule=replace(rule, first_at=min(rule.first_at, now)))
    return Step(due, Decision((asked,), since, ended_at))


def armed(found: Listed) -> Entry:
    refuse_gone(found)
    if isinstance(found.item, Entry):
        return found.item
    raise EntryStateError(
        found,
        f"the entry is not armed ({found.item.reason})",
        remedy=f"see `horae explain {found.item.origin}`",
    )


def refuse_gone(found: Listed) -> None:
    """Raise an error if an entry is no longer in its plan."""
    if found.gone_at is not None:
        raise EntryStateError(
            found,
            f"the entry was removed at {moment_text(found.gone_at, 'UTC')}",
            remedy=_way_back(found),
        )


def _way_back(found: Listed) -> str:
    """Return how an entry that is gone comes back; what somebody made by request has no file."""
    file, title = found.item.origin.file, found.mark.title
    if found.source == "trigger" and file == f"triggers/{title}":
        return f"add it again with `horae trigger add {title}`"
    return f"add it to {file} again"


def refuse_rest(found: Listed, *, is_sure: bool = False) -> None:
    """Raise an error if an entry rests, or must do so since nothing was filed for it."""
    if is_sure or found.pause is not None:
        raise EntryStateError(
            found,
            f"the entry is paused{rest_words(found)}",
            remedy=f"resume it with `horae resume {found.number}` first",
        )


def checked(name: str, what: str) -> str:
    """Return a name that can stand in a key."""
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise RequestError(f"{what} must have 1 to 200 printable characters")
    return name
