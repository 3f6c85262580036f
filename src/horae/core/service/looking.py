"""What is, what was and why: entries, receipts, runs and events."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from horae.core.decide import Status
from horae.core.entry import Entry, key_time
from horae.core.explain import (
    Answer,
    AskedMomentError,
    answer_of,
    answers,
    nearest,
    nothing_comes,
)
from horae.core.project import next_moment, project, unpaused
from horae.core.receipt import ENDS, OPEN, is_planned
from horae.core.service.base import BATCH, GOING, Base
from horae.core.service.errors import (
    EntryNotFoundError,
    ReceiptNotFoundError,
    RequestError,
    RunNotFoundError,
    RunStateError,
)
from horae.core.service.shapes import Account, Happened, History, Roll, RunLine, Why
from horae.core.text import moment_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from horae.core.explain import Ask
    from horae.core.ports import Filed, Listed
    from horae.core.project import Moment
    from horae.core.service.shapes import EntryLine

TINY: Final = timedelta(microseconds=1)
WAITS: Final = frozenset({Status.WAITING, Status.HELD})
_BESIDE: Final = 100  # receipts that are read beyond those of planned moments


class Looking(Base):
    """Answers questions about entries, receipts, runs and events."""

    async def entry(self, word: str) -> EntryLine:
        """Return the one entry that a person means, as people are told of it."""
        return self._entry_line(await self.named(word))

    async def entries(
        self, *, limit: int = 100, cursor: int | None = None, with_gone: bool = False
    ) -> Roll:
        """Return the entries after a number, the longest known first."""
        found = [
            each
            for each in await self._ledger.entries()
            if each.number > (cursor or 0) and (with_gone or each.gone_at is None)
        ]
        page = found[:limit]
        more = page[-1].number if len(found) > limit else None
        return Roll(tuple(map(self._entry_line, page)), more)

    async def history(
        self,
        word: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        limit: int = 50,
        cursor: int | None = None,
    ) -> History:
        """Return receipts, newest first, of one entry or of all, planned in a window."""
        if since is not None and until is not None and until < since:
            raise RequestError(f"the period from {key_time(since)} to {key_time(until)} is empty")
        found = None if word is None else await self.named(word)
        page = await self._ledger.receipts(
            entry=None if found is None else found.number,
            since=since,
            until=until,
            statuses=statuses,
            cursor=cursor,
            limit=limit,
        )
        return History(await self._lines(page.receipts), page.cursor)

    async def receipt(self, number: int) -> Account:
        filed = await self._ledger.receipt(number)
        if filed is None:
            raise ReceiptNotFoundError(number)
        [line] = await self._lines([filed])
        return Account(line, tuple(await self._ledger.runs_of(number)))

    async def run(self, number: int) -> RunLine:
        run = await self._ledger.run(number)
        if run is None:
            raise RunNotFoundError(number)
        return RunLine(run, (await self.receipt(run.receipt)).line)

    async def last_run(self, word: str) -> RunLine:
        """Return the run of an entry that was started last."""
        found = await self.named(word)
        page = await self._ledger.receipts(
            entry=found.number, statuses=ENDS | GOING | {Status.WAITING}, limit=20
        )
        runs = [run for each in page.receipts for run in await self._ledger.runs_of(each.number)]
        if not runs:
            raise RunNotFoundError(found.mark.title)
        return await self.run(max(run.number for run in runs))

    async def going(self, word: str) -> RunLine:
        """Return the one run of an entry that goes on."""
        found = await self.named(word)
        page = await self._ledger.receipts(entry=found.number, statuses=GOING)
        going = [(await self._ledger.runs_of(each.number))[-1].number for each in page.receipts]
        if len(going) == 1:
            return await self.run(going[0])
        title = found.mark.title
        if not going:
            page = await self._ledger.receipts(entry=found.number, statuses=WAITS, limit=1)
            waits = [waiting_words(each, self._zone_of(found)) for each in page.receipts]
            hint = waits[0] if waits else "; see `horae status`"
            raise RunStateError(title, f"no run is in progress{hint}")
        listed = ", ".join(map(str, sorted(going)))
        raise RunStateError(title, f"several runs are in progress; name one: {listed}", runs=going)

    async def events(self, *, after: int = 0, limit: int = 100) -> Happened:
        found = tuple(await self._ledger.events_after(after, limit=limit))
        return Happened(found, found[-1].number if found else after, self._zone)

    async def _asked(self, ask: Ask) -> Listed:
        """Return the entry of a question; of ENTRY@WORD, say that the word is not a time."""
        try:
            return await self.named(ask.word)
        except EntryNotFoundError:
            word, _, when = ask.word.rpartition("@")
            if not word.strip() or ask.start is not None:
                raise
            with suppress(EntryNotFoundError):  # the first error is the one to report
                await self.named(word.strip())
                raise AskedMomentError(when.strip()) from None
            raise

    async def why(self, ask: Ask, *, limit: int = 20) -> Why:
        """Return what was decided about the moments that are asked for, or why nothing was.

        Without a moment it is the last one and the next.
        """
        now = self._clock.now()
        found = await self._asked(ask)
        about = self._entry_line(found)
        try:
            window = ask.window(about.zone)
        except OverflowError:
            raise beyond() from None
        asked = [found] if found.is_armed else []
        unready = {} if self._unready is None else await self._unready(asked)
        cannot_run = str(unready.get(found.number, ""))
        if window is None:
            last = [await self._told(each) for each in await self._last(found)]
            coming = answers(found, [], _coming(found, now=now), now=now)
            if not coming and (not last or isinstance(found.item, Entry)):
                coming = (Answer(nothing_comes(found), is_moment=False),)
            return Why(now, about, (*last, *coming), cannot_run=cannot_run)
        check_calendar(window.start, window.end)
        start, end = window.start - TINY, window.end - TINY
        item = found.item
        moments: list[Moment] = []
        if isinstance(item, Entry):
            moments = list(islice(project(unpaused(item), start, end), limit + 1))
        is_cut = len(moments) > limit
        if is_cut:
            end = moments.pop().at - TINY  # where the moments end, the receipts do, too
        page = await self._ledger.receipts(
            entry=found.number, since=window.start, until=end, limit=limit + _BESIDE
        )
        if page.cursor is not None:
            moments = _from_the_oldest(moments, page.receipts)
        told = [await self._told(each) for each in page.receipts]
        said = answers(found, told, moments, now=now, window=window)
        is_cut = is_cut or page.cursor is not None or len(said) > limit
        before, after = nearest(item, window) if isinstance(item, Entry) else (None, None)
        return Why(
            now,
            about,
            said[:limit],
            window=window,
            before=before,
            after=after,
            is_cut=is_cut,
            cannot_run=cannot_run,
        )

    async def _last(self, found: Listed) -> list[Filed]:
        """Return the receipt of an entry's last moment, else the newest of any kind.

        Before one that was skipped comes what is not over yet: it was skipped behind that.
        """
        since = found.item.accounted_to if isinstance(found.item, Entry) else None
        page = await self._ledger.receipts(entry=found.number, since=since, limit=20)
        own = [each for each in page.receipts if is_planned(each.receipt.key)]
        if not own:
            page = await self._ledger.receipts(entry=found.number, limit=1)
        last = [*own, *page.receipts][:1]
        if not last or last[0].status is not Status.SKIPPED:
            return last
        page = await self._ledger.receipts(entry=found.number, statuses=OPEN, limit=BATCH)
        return [*page.receipts[-1:], *last]

    async def _told(self, filed: Filed) -> Answer:
        return answer_of(filed, await self._ledger.runs_of(filed.number))


def _from_the_oldest(moments: list[Moment], filed: Sequence[Filed]) -> list[Moment]:
    """Return the moments of which some receipts tell: of those before, others may."""
    planned = [each.receipt.planned_at for each in filed if is_planned(each.receipt.key)]
    return [each for each in moments if planned and each.at >= min(planned)]


def _coming(found: Listed, *, now: datetime) -> list[Moment]:
    """Return the next moment of an entry, if it has one; if it is paused, that after it, too."""
    if not isinstance(found.item, Entry) or found.gone_at is not None:
        return []
    entry = found.item
    # What has come and is not decided yet is next, too.
    since = min(now, entry.accounted_to) if entry.accounted_to is not None else now
    coming = [next_moment(unpaused(entry), since)]
    if entry.pause is not None:
        coming.append(next_moment(entry, now))
    return list(dict.fromkeys(each for each in coming if each is not None))


def check_calendar(*moments: datetime) -> None:
    """Raise an error if a moment has no neighbours in every zone: the calendar ends there."""
    if not all(1 < each.year < 9999 for each in moments):
        raise beyond()


def beyond() -> RequestError:
    """Return the error for a moment where the calendar ends."""
    return RequestError("the time is out of range; the year must be from 2 to 9998")


def waiting_words(filed: Filed, place: str) -> str:
    """Return that a receipt waits to start and what lets it not start; nothing if it does not."""
    if filed.status not in WAITS:
        return ""
    until = moment_text(filed.receipt.start_at, place)
    return (
        f"; receipt {filed.number} is waiting to start at {until}; to skip it, run "
        f"`horae pause {filed.entry}` and then `horae resume {filed.entry}`"
    )
