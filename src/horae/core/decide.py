"""Decisions about scheduled times that have come.

Every time between the watermark and now gets exactly one receipt, of its own or in a range, with a
reason. The same call again returns nothing, also after the clock was set back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec import Struct

from horae.core import entry as rules
from horae.core.entry import Entry, Rule, key_time
from horae.core.project import (
    Moment,
    counted,
    counts_from_end,
    decided,
    last_moments,
    next_moment,
    project,
    unpaused,
)
from horae.core.receipt import BAD, BROKEN, ENDS, Filed, Reason, ReasonCode, Receipt, Status
from horae.errors import ScheduleError
from horae.timing.duration import format_duration
from horae.timing.repeater import RepeaterKind

CAP: Final = 10  # how many missed times of one entry run after an outage
APART: Final = 100  # up to so many times in one step have a receipt each
GRACE: Final = timedelta(minutes=1)  # a time that is decided within this is on time
_DAWN: Final = datetime.min.replace(tzinfo=UTC)
WINDOW: Final = timedelta(hours=24)  # how late a cron time may still run
STUCK: Final = 3  # failures in a row
LOOKED_BACK: Final = 20  # earlier receipts that decide which occasions a receipt is
_WORDS: Final = ", ".join(rules.Occasion)


class Decision(Struct, frozen=True, gc=False):
    receipts: tuple[Receipt, ...]
    accounted_to: datetime | None
    ended_at: datetime | None


def begin(entry: Entry, *, now: datetime) -> Decision:
    """Return what to write when an entry is first seen, or seen again: nothing past fires.

    A delay that was due is still due, however long ago: its watermark is set before it.
    """
    entry = unpaused(entry)
    was, ended_at = entry.accounted_to, entry.ended_at
    since = now if was is None else max(now, was)
    match entry.rule:
        case rules.OnceRule(at, str()):
            return Decision((), min(now, max(at, _DAWN + GRACE) - GRACE), ended_at)
        case rules.OnceRule(at, None) if at <= now and (was is None or was < at):
            words = f"the entry was added {_long(now - at)} after its scheduled time"
            reason = Reason(ReasonCode.ADDED_LATE, words)
            if not entry.policy.allows(at):
                return Decision((), since, ended_at)
            moment = Moment(at.astimezone(UTC), f"at:{key_time(at)}")
            missed = _receipt(entry, moment, Status.MISSED, reason)
            return Decision((missed,), since, ended_at)
        case rules.RepeaterRule() if counts_from_end(entry.rule):
            # A cadence continues if its next time is still to come.
            coming = next_moment(entry, since)
            if coming is None or coming.is_estimate:
                ended_at = since
    return Decision((), since, ended_at)


def decide(
    entry: Entry, *, now: datetime, is_busy: bool = False, behind: Reason | None = None
) -> Decision:
    """Return a receipt for every time since the watermark, and the new watermark.

    *is_busy*: the entry has a receipt that is not final; *behind* is why that one does not run.
    """
    since = entry.accounted_to
    pending = None if since is None or now <= since else _pending(entry, since, now)
    if pending is None:
        return Decision((), since, entry.ended_at)
    receipts = _receipts(entry, pending, now=now, blocked=(behind or _BUSY) if is_busy else None)
    return Decision(receipts, pending.newest[-1].at, _ended_at(entry, receipts, now))


def close(entry: Entry, *, now: datetime, reason: Reason) -> Decision:
    entry = unpaused(entry)  # a time during a pause has a receipt, too
    since = entry.accounted_to
    if since is None or now <= since:
        return Decision((), since, entry.ended_at)
    pending = _pending(entry, since, now)
    if pending is None:
        return Decision((), now, entry.ended_at)
    skipped = (_range(entry, pending, Status.SKIPPED, reason),)
    return Decision(skipped, now, _ended_at(entry, skipped, now))


class _Pending(NamedTuple):
    total: int
    first: Moment
    newest: tuple[Moment, ...]


def _pending(entry: Entry, since: datetime, now: datetime) -> _Pending | None:
    first = next_moment(entry, since)
    if first is None or first.is_estimate or first.at > now:
        return None
    then = next_moment(entry, first.at)
    if then is None or then.is_estimate or then.at > now:  # usually there is only one
        return _Pending(1, first, (first,))
    newest = deque([first], maxlen=APART)
    total = 1
    for moment in decided(project(entry, first.at, now)):
        newest.append(moment)
        total += 1
        if total == APART + 1 and (rest := _many(entry, moment.at, now)) is not None:
            return rest._replace(total=total + rest.total, first=first)
    return _Pending(total, first, tuple(newest))


def _many(entry: Entry, since: datetime, now: datetime) -> _Pending | None:
    """Count the times without iterating over them, and return the newest; None if not worth it."""
    rest, (_, end) = counted(entry, since, now), entry.policy.clip(since, now)
    if rest is None or rest <= APART:
        return None
    last = last_moments(entry, end, CAP + 1)
    return _Pending(rest, last[0], last)


def _receipts(
    entry: Entry, pending: _Pending, *, now: datetime, blocked: Reason | None
) -> tuple[Receipt, ...]:
    catchup, newest = entry.policy.catchup or usual_catchup(entry.rule), pending.newest
    runs = _runs(entry, catchup, newest, now)
    running = newest[len(newest) - runs :]
    # Times that are caught up run one after another, whatever the overlap policy.
    is_made_good = catchup is rules.CatchUp.ALL and any(now - each.at > GRACE for each in running)
    gives_way = running and entry.policy.overlap is rules.Overlap.SKIP and not is_made_good
    why = blocked if gives_way else None
    if why is not None and catchup is rules.CatchUp.LATEST:
        return tuple(_passed(entry, pending, Status.SKIPPED, why))
    then = _running(entry, running, now, catchup=catchup, blocked=why)
    if runs == pending.total:
        return tuple(then)
    passed = pending._replace(total=pending.total - runs, newest=newest[: len(newest) - runs])
    return (*_passed(entry, passed, *_why_not(catchup, running)), *then)


_BUSY: Final = Reason(
    ReasonCode.OVERLAP_RUNNING, "the previous run was still running, and overlap is skip"
)
DUE: Final = Reason(ReasonCode.DUE, "the scheduled time was reached")


def behind_words(status: Status, reason: str) -> Reason | None:
    """Return why a time is skipped behind a receipt of a status; None if that receipt runs.

    >>> behind_words(Status.HELD, "its agent has no command")
    'the previous run is held (its agent has no command), and overlap is skip'
    """
    match status:
        case Status.HELD:
            words = f"the previous run is held ({reason}), and overlap is skip"
            return Reason(ReasonCode.OVERLAP_HELD, words)
        case Status.WAITING:
            words = "the previous run is still waiting to start, and overlap is skip"
            return Reason(ReasonCode.OVERLAP_WAITING, words)
        case _:
            return None


def _why_not(catchup: rules.CatchUp, running: tuple[Moment, ...]) -> tuple[Status, Reason]:
    if catchup is rules.CatchUp.NONE:
        words = "the engine was down, and catch-up is none"
        return Status.MISSED, Reason(ReasonCode.CATCHUP_NONE, words)
    if catchup is rules.CatchUp.ALL:
        words = f"catch-up is all, which runs only the newest {CAP} missed times"
        return Status.MISSED, Reason(ReasonCode.CATCHUP_LIMIT, words)
    if running:
        words = f"replaced by the run of {key_time(running[-1].at)}, as catch-up is latest"
        return Status.COALESCED, Reason(ReasonCode.CATCHUP_LATEST, words)
    words = f"more than {_long(WINDOW)} late, and catch-up is latest"
    return Status.MISSED, Reason(ReasonCode.CATCHUP_WINDOW, words)


def _runs(entry: Entry, catchup: rules.CatchUp, newest: tuple[Moment, ...], now: datetime) -> int:
    late = now - newest[-1].at
    match catchup:
        case rules.CatchUp.ALL:
            return min(CAP, len(newest))
        case rules.CatchUp.LATEST if isinstance(entry.rule, rules.CronRule):
            return int(late <= WINDOW)
        case rules.CatchUp.LATEST:
            return 1
        case rules.CatchUp.NONE:
            return int(_is_delay(entry) or late <= GRACE)


def usual_catchup(rule: Rule) -> rules.CatchUp:
    if isinstance(rule, rules.RepeaterRule) and rule.repeater.kind is RepeaterKind.CUMULATE:
        return rules.CatchUp.ALL
    return rules.CatchUp.LATEST


def _passed(entry: Entry, passed: _Pending, status: Status, reason: Reason) -> Iterator[Receipt]:
    if passed.total == len(passed.newest):
        for moment in passed.newest:
            yield _receipt(entry, moment, status, reason)
    else:
        yield _range(entry, passed, status, reason)


def _running(
    entry: Entry,
    moments: tuple[Moment, ...],
    now: datetime,
    *,
    catchup: rules.CatchUp,
    blocked: Reason | None,
) -> Iterator[Receipt]:
    for moment in moments:
        if blocked is not None:
            yield _receipt(entry, moment, Status.SKIPPED, blocked)
            continue
        late = now - moment.at
        reason = DUE
        if late > GRACE and _is_delay(entry):
            words = f"the scheduled time was {_long(late)} ago; a delay stays due until it runs"
            reason = Reason(ReasonCode.DELAY_DUE, words)
        elif late > GRACE:
            words = f"the scheduled time was {_long(late)} ago; catch-up is {catchup}"
            reason = Reason(ReasonCode.CAUGHT_UP, words)
        yield _receipt(entry, moment, Status.WAITING, reason)


def _is_delay(entry: Entry) -> bool:
    return isinstance(entry.rule, rules.OnceRule) and entry.rule.delay is not None


def _receipt(entry: Entry, moment: Moment, status: Status, reason: Reason) -> Receipt:
    start_at = moment.at + jitter(entry, moment.key)
    return Receipt(moment.key, status, reason, moment.at, start_at)


def _range(entry: Entry, pending: _Pending, status: Status, reason: Reason) -> Receipt:
    first = pending.first
    if pending.total == 1:
        return _receipt(entry, first, status, reason)
    last = pending.newest[-1].at
    return Receipt(first.key, status, reason, first.at, first.at, last, pending.total)


def jitter(entry: Entry, key: str) -> timedelta:
    if not entry.policy.jitter:
        return timedelta(0)
    roll = int.from_bytes(sha256(f"{entry.number}:{key}".encode()).digest()[:8], "big")
    return timedelta(seconds=int(entry.policy.jitter.total_seconds() * roll / 2**64))


def _ended_at(entry: Entry, receipts: tuple[Receipt, ...], now: datetime) -> datetime | None:
    is_waiting = any(receipt.status is Status.WAITING for receipt in receipts)
    return entry.ended_at if is_waiting or not counts_from_end(entry.rule) else now


def _long(length: timedelta) -> str:
    return format_duration(timedelta(seconds=int(length.total_seconds())))


# `:AFTER: failed stuck of nightly-backup`: an alert never follows another, so there are no cycles.


class AfterError(ScheduleError, code="after"):
    def __init__(self, text: str, *, reason: str) -> None:
        self.text, self.reason = text, reason
        super().__init__(f":AFTER: {text[:60]}: {reason}")


def parse_after(text: str) -> rules.AfterRule:
    """Parse an `:AFTER:`.

    >>> parse_after("failed of nightly-backup")
    AfterRule(occasions=(<Occasion.FAILED: 'failed'>,), of='nightly-backup')
    >>> parse_after("missed").of
    ''
    """
    said, _, of = f" {text.strip()} ".partition(" of ")
    words = said.replace(",", " ").split()
    unknown = next((word for word in words if word not in set(rules.Occasion)), None)
    if not words or unknown is not None:
        what = f"{unknown!r} is not an event" if unknown else "no event is named"
        reason = f"{what}; write one or more of {_WORDS}, and optionally `of ENTRY`"
        raise AfterError(text, reason=reason)
    of = "" if of.strip() == "all" else of.strip()
    return rules.AfterRule(tuple(dict.fromkeys(map(rules.Occasion, words))), of)


def occasions_of(filed: Filed, before: Sequence[Filed]) -> frozenset[rules.Occasion]:
    """Return the occasions that a final receipt is; *before* are earlier ones, newest first."""
    earlier, key = [each.status for each in before[:LOOKED_BACK]], filed.receipt.key
    codes = [str(each.receipt.reason.code) for each in (filed, *before[:1])]
    late = filed.lateness
    found = occasions(filed.status, lateness=late, before=earlier, key=key, codes=codes)
    return found | {rules.Occasion.STUCK} if _is_same(filed, before) else found


def looked_back(filed: Filed) -> int:
    return LOOKED_BACK * (1 if filed.policy.same is None else filed.policy.same)


def _is_same(filed: Filed, before: Sequence[Filed]) -> bool:
    most, results = filed.policy.same, [_result(filed), *map(_result, before)]
    ends = [each for each in results if each[0] in ENDS]
    equal = sum(1 for _ in takewhile(lambda each: each == _result(filed), ends))
    return filed.status in ENDS and equal == most


def _result(filed: Filed) -> tuple[Status, str]:
    return filed.status, str(filed.receipt.reason)


def occasions(
    status: Status,
    *,
    lateness: timedelta,
    before: Sequence[Status],
    key: str = "",
    codes: Sequence[str] = (),
) -> frozenset[rules.Occasion]:
    """Return the occasions that a final receipt is; *before* are earlier ends, newest first.

    *codes* are those of its reason, and of the reasons of the receipts before it.
    """
    found = {rules.Occasion.BROKEN} if key.startswith(BROKEN) else set()
    if status in BAD:
        found.add(rules.Occasion.FAILED)
        ends = [each for each in before if each in ENDS][:STUCK]
        if all(each in BAD for each in ends[: STUCK - 1]) and len(ends) >= STUCK - 1:
            is_first = len(ends) < STUCK or ends[STUCK - 1] not in BAD
            found |= {rules.Occasion.STUCK} if is_first else set()
    elif status in ENDS:
        last = next((each for each in before if each in ENDS), None)
        found |= {rules.Occasion.RECOVERED} if last in BAD else set()
    if status in ENDS and lateness > GRACE:
        found.add(rules.Occasion.LATE)
    if status is Status.MISSED:
        found.add(rules.Occasion.MISSED)
    if codes[:1] == [ReasonCode.BUDGET] != codes[1:2]:  # the first of several in a row
        found.add(rules.Occasion.BUDGET)
    return frozenset(found)


def follows(rule: rules.AfterRule, *, names: Sequence[str], agents: Sequence[str]) -> bool:
    """Return whether a rule follows an entry with these names, or with one of these agents.

    >>> follows(parse_after("failed of agent:wren"), names=["Digest"], agents=["wren"])
    True
    """
    return not rule.of or rule.of in names or rule.of in {f"agent:{name}" for name in agents}
