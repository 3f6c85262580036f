"""The page of a rest in `rem/`, made of facts alone: done, stuck, due next, and what to carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.receipt import BAD, ENDS, Status, shown
from horae.core.text import moment_text
from horae.org.document import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from horae.files.git.repository import Logged
    from horae.sources.crew.briefing import Handed

FOLDER: Final = "rem"
MOST_LISTED: Final = 30  # lines of one heading
MOST_CARRIED: Final = 5  # of each kind

_CARRY: Final = "Carry"
_NOTHING: Final = "- nothing"


class Ran(NamedTuple):
    at: datetime
    title: str
    status: Status
    reason: str = ""


class DiaryEntry(NamedTuple):
    at: datetime
    title: str


@dataclass(frozen=True, slots=True)
class DiaryFacts:
    commits: Sequence[Logged] = ()
    runs: Sequence[Ran] = ()
    board: Mapping[str, int] = field(default_factory=dict)  # how many tasks in each status
    coming: Sequence[DiaryEntry] = ()
    handed: Handed | None = None  # what the agent would be handed now


def rest_file(now: datetime) -> str:
    """Return the path of a rest's page.

    >>> rest_file(datetime(2026, 6, 6, 6, 5, tzinfo=UTC))
    'rem/2026-06-06-0605.org'
    """
    return f"{FOLDER}/{now.astimezone(UTC):%Y-%m-%d-%H%M}.org"


def is_quiet(facts: DiaryFacts) -> bool:
    """Tell whether nothing happened since the last rest, so that it writes no page."""
    return not facts.commits and all(run.status is Status.NO_WORK for run in facts.runs)


def rest_text(facts: DiaryFacts, *, agent: str, now: datetime, zone_name: str = "UTC") -> str:
    head = f"#+TITLE: Rest of {shown(agent)}, {moment_text(now, zone_name)}\n"
    pages = {
        "Done": _done(facts, zone_name),
        "Stuck": _stuck(facts),
        "Due next": _due(facts, zone_name),
        _CARRY: _carry(facts, zone_name),
    }
    text = head
    for title, lines in pages.items():
        found = list(lines)
        # As a list, so that no line can be read as a heading or a date.
        kept = [f"- {line}\n" for line in found[:MOST_LISTED]]
        if len(found) > MOST_LISTED:
            kept.append(f"- and {len(found) - MOST_LISTED} more\n")
        text += f"\n* {title}\n" + ("".join(kept) or f"{_NOTHING}\n")
    return text


def carry_of(text: str) -> str:
    for headline in read(text).headlines:
        if headline.level == 1 and headline.title == _CARRY:
            said = headline.text.partition("\n")[2].strip()
            return "" if said == _NOTHING else said
    return ""


def _done(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    for commit in sorted(facts.commits, key=lambda each: each.at):
        when = moment_text(commit.at, zone_name)
        yield f"{when}, {shown(commit.author)}: {shown(commit.subject)}"
    ends = Counter(run.status for run in facts.runs)
    counts = [f"{ends[status]} {status}" for status in Status if ends[status]]
    if counts:
        yield f"runs: {', '.join(counts)}"
    if facts.board:
        yield "board: " + ", ".join(f"{facts.board[name]} {shown(name)}" for name in facts.board)


def _stuck(facts: DiaryFacts) -> Iterator[str]:
    for title, (count, reason) in _bad_ends(facts.runs).items():
        times = "once" if count == 1 else f"{count} times in a row"
        yield f"{title}: failed {times}{f', last: {reason}' if reason else ''}"
    handed = facts.handed
    for item in (*handed.claims, *handed.overdue, *handed.due) if handed else ():
        if item.waits_for:
            yield f"{shown(item.title)}: waits for {shown(', '.join(item.waits_for))}"


def _bad_ends(runs: Sequence[Ran]) -> dict[str, tuple[int, str]]:
    """Return for each title how often it last ended badly in a row, and why the last time."""
    found: dict[str, tuple[int, str]] = {}
    for run in sorted(runs, key=lambda each: each.at):
        title = shown(run.title)
        if run.status in BAD:
            found[title] = (found.get(title, (0, ""))[0] + 1, shown(run.reason))
        elif run.status in ENDS:
            found.pop(title, None)
    return found


def _due(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    if facts.handed is not None:
        for word, found in (("overdue", facts.handed.overdue), ("due", facts.handed.due)):
            for item in found:
                since = f" since {moment_text(item.at, zone_name)}" if item.at else ""
                yield f"{shown(item.title)} ({shown(item.where)}): {word}{since}"
    for coming in sorted(facts.coming, key=lambda each: each.at):
        yield f"{moment_text(coming.at, zone_name)}: {shown(coming.title)}"


def _carry(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    handed = facts.handed
    if handed is not None:
        for item in handed.claims[:MOST_CARRIED]:
            yield f"finish {shown(item.title)} ({shown(item.where)}), which you claimed"
    for title, (_, reason) in list(_bad_ends(facts.runs).items())[:MOST_CARRIED]:
        yield f"look at {title}{f': {reason}' if reason else ''}"
    if handed is None:
        return
    for item in handed.overdue[:MOST_CARRIED]:
        since = f", overdue since {moment_text(item.at, zone_name)}" if item.at else ""
        yield f"start with {shown(item.title)} ({shown(item.where)}){since}"
    for item in handed.unblocked[:MOST_CARRIED]:
        yield f"start {shown(item.title)} ({shown(item.where)}): it is no longer blocked"
