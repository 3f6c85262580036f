"""Why an entry ran, or did not, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import UNSET, structs

from horae.core import entry as rules
from horae.core.actor import ENGINE, by_words
from horae.core.budget import amount_text, usage_of
from horae.core.decide import usual_catchup
from horae.core.entry import Entry, Policy
from horae.core.ports import Listed, Run
from horae.core.project import TINY, Moment, counts_from_end, last_moments, next_moment, tick_delay
from horae.core.receipt import Filed, ReasonCode, Status, is_planned, steps_in
from horae.core.text import entry_words, in_zone, moment_text, pause_words
from horae.core.views import (
    Attempt,
    EntryLine,
    WhyLine,
    WhyLines,
    attempts,
    of_receipt,
    shaped,
    zoned,
)
from horae.errors import Exit, HoraeError
from horae.timing.duration import delay_after, format_duration
from horae.timing.zone import Rfc3339Error, format_with_offset, instant, parse_rfc3339, zone

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_WALL: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?)?", re.ASCII)
_LIKE_A_DATE: Final = re.compile(r"\d{4}-", re.ASCII)


class AskedMomentError(HoraeError, code="asked_moment", exit_code=Exit.USAGE):
    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"{text!r} is not a time; write it like 2026-04-01T09:00 (in the entry's zone), "
            "2026-04-01 (that day) or 2026-04-01T09:00:00Z"
        )


class Window(NamedTuple):
    start: datetime
    end: datetime
    is_day: bool = False


@dataclass(frozen=True, slots=True)
class WhyQuestion:
    """An entry, and a second, a minute or a day; in the entry's zone if no zone is given."""

    word: str
    start: datetime | None = None
    length: timedelta = _SECOND

    def window(self, zone_name: str) -> Window | None:
        if self.start is None:
            return None
        if self.start.tzinfo is not None:
            start = self.start.astimezone(UTC)
            return Window(start, start + self.length)
        place = zone(zone_name)
        start = instant(self.start, place)
        end = max(instant(self.start + self.length, place), start + _SECOND)
        return Window(start, end, is_day=self.length == _DAY)


def parse_ask(text: str) -> WhyQuestion:
    """Parse `ENTRY@TIME`; an @ that no time follows is part of the name.

    >>> parse_ask("digest@2026-04-01T09:00")
    WhyQuestion(word='digest', start=datetime.datetime(2026, 4, 1, 9, 0),
        length=datetime.timedelta(seconds=60))
    >>> parse_ask("mail to bob@home").word
    'mail to bob@home'
    """
    word, at, when = text.rpartition("@")
    when = when.strip()
    if not at or not word.strip() or not _LIKE_A_DATE.match(when):
        return WhyQuestion(text.strip())
    wall = _WALL.fullmatch(when)
    try:
        if wall is None:
            return WhyQuestion(word.strip(), parse_rfc3339(when).replace(microsecond=0))
        day, minute, second = wall.groups()
        start = datetime.fromisoformat(f"{day}T{minute or '00:00'}{second or ''}")
        length = _SECOND if second else timedelta(minutes=1) if minute else _DAY
        return WhyQuestion(word.strip(), start, length)
    except (Rfc3339Error, ValueError, OverflowError):
        raise AskedMomentError(when) from None


def why_lines(
    entry: EntryLine,
    answers: Sequence[WhyLine],
    *,
    now: datetime,
    cannot_run: str = "",
    window: Window | None = None,
    nearest: tuple[datetime | None, datetime | None] = (None, None),
    is_cut: bool = False,
) -> WhyLines:
    own: dict[str, Any] = {"start": window and window.start, "end": window and window.end}
    own |= {"cannot_run": cannot_run or None, "before": nearest[0], "after": nearest[1]}
    lines = tuple(structs.replace(each, at=zoned(each.at, entry.zone)) for each in answers)
    return shaped(WhyLines, entry.zone, at=now, entry=entry, answers=lines, more=is_cut, **own)


def answers(
    found: Listed,
    told: Sequence[WhyLine],
    moments: Sequence[Moment],
    *,
    now: datetime,
    window: Window | None = None,
) -> list[WhyLine]:
    """Return an explanation for each time: its receipt, or why there is none."""
    today, item = [moment.at for moment in moments], found.item
    is_fixed = isinstance(item, Entry) and not counts_from_end(item.rule) and is_timed(item.rule)
    covering: list[WhyLine] = []
    kept: list[tuple[datetime, datetime]] = []  # times that other receipts cover
    for each in told:
        assert each.at is not None, "it is about a receipt"
        start, end, key = each.at, each.through_at or each.at, each.key or ""
        is_named = any(start <= at <= end for at in today)
        # The page holds ranges that only touch the window; the current rule tells what they cover.
        if each.through_at and not is_named:
            continue
        is_own = is_planned(key)
        kept += [(start, end)] if is_own or key.startswith("backfill:") else []
        if is_own and not is_named and is_fixed:
            said = f"{each.said}; the current rule does not include this time"
            each = structs.replace(each, said=said)  # noqa: PLW2901
        covering.append(each)
    bare = [
        bare_line(unkept(found, moment, now=now), moment.at, is_estimate=moment.is_estimate)
        for moment in moments
        if not any(start <= moment.at <= end for start, end in kept)
    ]
    # Not the times themselves: in one zone Python compares local times and ignores the fold.
    by_time = sorted(
        [*covering, *bare], key=lambda each: ((each.at or now).timestamp(), each.receipt or 0)
    )
    if by_time or window is None:
        return by_time
    return [bare_line(_no_moment(found, window, bool(told)), window.start, is_moment=False)]


def bare_line(
    said: str,
    at: datetime | None = None,
    *,
    is_estimate: bool = False,
    is_moment: bool = True,
    way: str = "",
) -> WhyLine:
    return WhyLine(at=at, said=said, moment=is_moment, estimate=is_estimate, way=way or UNSET)


def line_of(filed: Filed, runs: Iterable[Run], zone_name: str) -> WhyLine:
    receipt = filed.receipt
    many = f" ({receipt.count} scheduled times in one receipt)" if receipt.count > 1 else ""
    what = "edited" if receipt.reason.code == ReasonCode.ENTRY_BROKEN else receipt.status.value
    own: dict[str, Any] = {
        **of_receipt(filed),
        "at": receipt.planned_at,
        "said": f"{what.replace('_', ' ')}: {receipt.reason}{many}",
        "policy": filed_policy_words(filed, zone_name=zone_name),
        "runs": attempts(runs, zone_name),
        "way": approval_way(filed) or UNSET,
    }
    parts = receipt, filed, filed.origin
    return shaped(WhyLine, zone_name, *parts, moment=True, estimate=False, **own)


def approval_way(filed: Filed) -> str:
    if filed.status is not Status.HELD or filed.receipt.reason.code != ReasonCode.APPROVAL_REQUIRED:
        return ""
    approve = f"approve it with `horae approval approve {filed.number}`"
    return f"{approve}, or reject it with `horae approval reject {filed.number}`"


def gone_words(found: Listed) -> str:
    assert found.gone_at is not None, "it is gone"
    at = moment_text(found.gone_at, _zone_of(found))
    if isinstance(found.item, Entry) and found.item.work is rules.Work.DISPATCH:
        return f"the task was closed or removed at {at}"
    return f"the entry was removed at {at}"


def unkept(found: Listed, moment: Moment, *, now: datetime) -> str:
    place = _zone_of(found)
    at = moment.at
    if found.gone_at is not None and at > found.gone_at:
        return gone_words(found)
    if at > now:
        return _future(found, moment, now=now)
    if found.pause is not None and at > found.pause.at:
        return f"the entry is paused{rest_words(found)}; this time is skipped on resume"
    accounted_to = found.item.accounted_to if isinstance(found.item, Entry) else at
    # A one-time trigger may be added after its time, and runs then.
    if accounted_to is None or at > accounted_to:
        ago = length_text(now - at)
        return f"due {ago} ago and not decided yet; a running engine (`horae up`) decides at once"
    if at < found.first_seen_at:
        seen = moment_text(found.first_seen_at, place)
        return f"the entry was first seen later, at {seen}; earlier times do not run"
    return "the entry had another rule at that time, or was not armed"


def _future(found: Listed, moment: Moment, *, now: datetime) -> str:
    said = f"scheduled in {length_text(moment.at - now)}"
    if found.pause is not None:
        until = found.pause.until
        if until is None or until >= moment.at:
            way = "" if until else f"; resume the entry with `horae resume {found.number}`"
            paused = f"the entry is paused{rest_words(found)}"
            return f"{said}, but {paused}: this time will be skipped{way}"
    if isinstance(found.item, Entry) and isinstance(found.item.rule, rules.CadenceRule):
        said += longer_words(found.item.rule)
    if moment.is_estimate:
        return f"{said} (estimated: it depends on the end of the previous run)"
    return said


def longer_words(rule: rules.CadenceRule) -> str:
    """Return why the wait before a tick is longer than its interval; else empty.

    >>> first_at = datetime(2026, 4, 1, tzinfo=UTC)
    >>> longer_words(rules.CadenceRule(timedelta(minutes=1), first_at, streak=3))
    ' (4m instead of 1m after the end of the last tick: 3 ticks without work in a row)'
    """
    wait = tick_delay(rule)
    if wait <= rule.base:
        return ""
    is_idle = delay_after(rule.base, rule.streak) >= wait
    why = f"{rule.streak} ticks without work" if is_idle else f"{rule.failures} failures"
    lengths = f"{format_duration(wait)} instead of {format_duration(rule.base)}"
    return f" ({lengths} after the end of the last tick: {why} in a row)"


def nothing_comes(found: Listed, last: Sequence[WhyLine] = (), unassigned: str = "") -> WhyLine:
    if unassigned:
        return bare_line(f"not assigned: {unassigned}", is_moment=False)
    item, way = found.item, ""
    is_on_demand = isinstance(item, Entry) and isinstance(item.rule, rules.OnDemandRule)
    # The cause of the last hold would hold another request, too.
    if is_on_demand and not found.gone_at and not any(e.status is Status.HELD for e in last):
        way = f"run it now with `horae run {found.number}`"
        if found.pause is not None:  # a paused entry cannot be run
            way = f"resume it with `horae resume {found.number}`, then {way.replace('now ', '')}"
    return bare_line(_why_nothing_comes(found), is_moment=False, way=way)


def _why_nothing_comes(found: Listed) -> str:
    place, item = _zone_of(found), found.item
    if found.gone_at is not None:
        return f"nothing scheduled: {gone_words(found)}"
    if not isinstance(item, Entry):
        return "nothing scheduled: the entry is not armed"
    match item.rule:
        case rules.OnDemandRule() if item.deadline is not None:
            return "the entry has only a DEADLINE, which never fires"
        case rules.OnDemandRule() if found.broken:
            return f"the schedule of the entry cannot be read: {found.broken}"
        case rules.OnDemandRule():
            how = entry_words(item, zone_name=place)
            only = "and runs only on request" if how == "on request" else f"and runs {how}"
            name = item.origin.trigger
            shows = f"; `horae trigger show {name}` shows the trigger" if name else ""
            return f"the entry has no schedule {only}{shows}"
        case rules.AfterRule():
            return "the entry runs after other entries and has no schedule of its own"
        case rule if counts_from_end(rule):
            return "the next time depends on the end of the current run"
    until = item.policy.until
    if until is not None:
        return f"nothing scheduled: :UNTIL: is {moment_text(until, place)}"
    return "nothing scheduled: the rule has no future time"


def at_the_gate(why: WhyLines, obstacles: Mapping[int, str]) -> WhyLines:
    told = []
    for each in why.answers:
        obstacle = obstacles.get(each.receipt or 0)
        if each.status is Status.WAITING and obstacle is not None:
            # The requester would be hidden otherwise.
            requested = f"; {each.reason}" if each.reason_code in _REQUESTS else ""
            each = structs.replace(each, said=f"waiting: {obstacle}{requested}")  # noqa: PLW2901
        told.append(each)
    return structs.replace(why, answers=tuple(told))


def _no_moment(found: Listed, window: Window, has_receipts: bool) -> str:
    if not isinstance(found.item, Entry):
        return f"the entry is not armed: {found.item.reason}"
    if found.gone_at is not None:
        return gone_words(found)
    if has_receipts:
        return "not a scheduled time of the current rule; receipts of an earlier rule span it"
    first, until = found.item.policy.from_at, found.item.policy.until
    if first is not None and window.end <= first:
        begin = moment_text(first, _zone_of(found))
        return f":FROM: is {begin}; nothing is scheduled before it"
    if until is not None and window.start > until:
        end = moment_text(until, _zone_of(found))
        return f":UNTIL: was {end}; nothing is scheduled after it"
    return "no scheduled time on this day" if window.is_day else "not a scheduled time of the rule"


def rest_words(found: Listed) -> str:
    return "" if found.pause is None else pause_words(found.pause, zone_name=_zone_of(found))


def nearest(entry: Entry, window: Window) -> tuple[datetime | None, datetime | None]:
    coming = next_moment(entry, window.end - TINY)
    before = [each.at for each in last_moments(entry, window.start - TINY, 1)]
    if isinstance(entry.rule, rules.OnceRule) and entry.policy.allows(entry.rule.at):
        before = [at for at in (entry.rule.at.astimezone(UTC),) if at < window.start]
    return next(iter(before), None), None if coming is None else coming.at


def filed_policy_words(filed: Filed, *, zone_name: str) -> str:
    usual = rules.CatchUp.LATEST if filed.receipt.key.startswith("cron:") else None
    return policy_words(filed.policy, zone_name=zone_name, usual=usual)


def is_timed(rule: rules.Rule) -> bool:
    return isinstance(rule, rules.CronRule | rules.RepeaterRule | rules.OnceRule)


def entry_policy_words(entry: Entry) -> str:
    usual = usual_catchup(entry.rule) if is_timed(entry.rule) else None
    return policy_words(entry.policy, zone_name=entry.zone, usual=usual)


def policy_words(policy: Policy, *, zone_name: str, usual: rules.CatchUp | None = None) -> str:
    """Return a policy in words; *usual* is the catch-up of a policy that sets none.

    >>> from horae.core.entry import CatchUp, Policy, Retry
    >>> policy = Policy(retry=Retry(3, timedelta(seconds=30)))
    >>> policy_words(policy, zone_name="UTC", usual=CatchUp.LATEST)
    'catch-up latest, overlap skip, up to 3 retries, the first after 30s'
    """
    policy = structs.replace(policy, catchup=policy.catchup or usual)
    parts = policy_parts(policy, zone_name=zone_name)
    # Defaults are left out unless they were chosen.
    said = (
        words
        for each, words in parts
        if (value := each.of(policy)) != each.default or isinstance(value, StrEnum)
    )
    return ", ".join(said)


def policy_parts(policy: Policy, *, zone_name: str) -> list[tuple[rules.PolicyProperty, str]]:
    found = []
    for each in rules.PROPERTIES:
        value = text = each.of(policy)
        match value:
            case timedelta():
                text = format_duration(value)
            case datetime():
                text = moment_text(value, zone_name)
            case tuple():
                text = " and ".join(map(str, value))
        found.append((each, each.words.format(text)))
    return found


def run_words(run: Attempt, zone_name: str, *, is_over: bool = False) -> str:
    """Return a run in words; *is_over*: it has ended, although no end is recorded."""
    since, why = (
        moment_text(run.started_at, zone_name),
        in_zone(run.reason, zone_name, run.reason_code),
    )
    where = f" on {run.node}" if run.node else ""
    is_limited = run.outcome is Status.LIMITED  # and it is not counted as an attempt
    attempt = f"run {run.run}" if is_limited else f"attempt {run.attempt} (run {run.run})"
    begun = f"{attempt}: started {since}{where}"
    if run.ended_at is None and is_over:
        return f"{begun}; its end is not recorded yet"
    if run.ended_at is None:
        return f"{begun}, in progress"
    if run.reason_code == ReasonCode.ENGINE_EXITED and run.outcome is not None:
        # The end of the run is unknown: the next engine recorded it later.
        return f"{begun}, {run.outcome.value} ({why})"
    reason = f" ({why})" if why else ""
    if run.outcome is None:
        return f"{attempt}: not started at {since}{where}{reason}"
    took, outcome = length_text(run.ended_at - run.started_at), run.outcome.value.replace("_", " ")
    used = usage_of(run.facts).cost
    took += "" if used is None else f" for {amount_text(used)}"
    code = "" if run.exit_code is None else f"exit code {run.exit_code}"
    if code and code in why:
        return f"{begun}, {outcome} after {took}, {why}"
    code = f", {code}" if code else ""
    return f"{begun}, {outcome} after {took}{code}{reason}"


def work_words(facts: Mapping[str, object]) -> Iterator[str]:
    """Yield where an agent's run worked, if not as usual, and where its work is kept.

    >>> kept = {"branch": "horae-work/wren/7", "delivery": "both sides changed plan.org"}
    >>> list(work_words(kept))
    ['work: kept on horae-work/wren/7 (both sides changed plan.org); see `horae agent work`']
    """
    if "tree" in facts:
        yield f"tree: {facts['tree']}"
    if isinstance(edits := facts.get("edits"), list):
        yield f"tree: without the uncommitted edits of {', '.join(map(str, edits))}"
    if "branch" in facts:
        yield f"work: kept on {facts['branch']} ({facts.get('delivery')}); see `horae agent work`"
        yield from (f"  {line}" for line in str(facts.get("diff", "")).splitlines())
    elif facts.get("delivered") is False:
        yield f"work: not delivered yet ({facts.get('delivery')})"
    record = facts.get("record")
    for step in steps_in(record) if isinstance(record, dict) else ():
        if isinstance(of_step := step.get("facts"), dict):
            for words in work_words(of_step):
                yield words if words.startswith(" ") else f"{step.get('name')}: {words}"


# Reasons with these codes name the actor already; those of an older version have no code.
_REQUESTS: Final = frozenset({ReasonCode.REQUESTED, ReasonCode.BACKFILL, ""})


def requested_words(actor: str, reason_code: str | None, note: str | None) -> str:
    if actor == ENGINE or (reason_code or "") in _REQUESTS:
        return ""
    return by_words("requested", note or "", actor=actor)


def length_text(length: timedelta) -> str:
    """Return a short duration in words.

    >>> length_text(timedelta(minutes=3, seconds=2.7))
    '3m2s'
    """
    return format_duration(timedelta(seconds=int(length.total_seconds())))


def stamp(moment: datetime | None, zone_name: str) -> str | None:
    return None if moment is None else format_with_offset(moment.astimezone(zone(zone_name)))


def _zone_of(found: Listed) -> str:
    return found.item.zone if isinstance(found.item, Entry) else "UTC"
