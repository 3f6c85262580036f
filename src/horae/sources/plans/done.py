"""Edits of a headline: its state, its planning line and its properties, and nothing else.

`complete` does what Emacs Org does when a headline is done. One that repeats moves on to its next
date, is open again and gets the time in `:LAST_REPEAT:`; any other gets its done state and the
time in `CLOSED:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from horae.errors import Exit, ScheduleError
from horae.files.edit import Splice, edit, spliced
from horae.files.read import LIMIT, PlanFileError, StrPath, read_plan
from horae.org.check.finding import is_fired
from horae.org.document import read
from horae.org.drawer import properties
from horae.org.element import bare, keywords
from horae.org.headline import parts
from horae.org.plan import Headline, Plan, Property, Span
from horae.org.timestamp import parse_timestamp
from horae.timing.repeater import repeat
from horae.timing.zone import local, zone as zone_named

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ACTIVE: Final = re.compile(r"<[0-9]{4}-[0-9]{2}-[0-9]{2}[^<>\n]*+>")
_DRAWER: Final = re.compile(r"[ \t]*+:PROPERTIES:[ \t]*+\r?(?:\n|\Z)", re.IGNORECASE)
_FIRST_LINE: Final = re.compile(r"^[ \t]*+[^\s]", re.MULTILINE)  # that is not blank
_INDENT: Final = re.compile(r"[ \t]*+")
_DIVIDER: Final = re.compile(r"[ \t]*+,?+[ \t]*+")
_RECORDED: Final = re.compile(r"([^(]+)\([^!@/]?([!@])?(?:/([!@]))?\)")
_STATE_KEYS: Final = frozenset({"TODO", "SEQ_TODO", "TYP_TODO"})
_SHOWN: Final = 5


class HeadlineMissingError(PlanFileError, code="headline_missing", exit_code=Exit.NOT_FOUND):
    def __init__(self, path: str, name: str, near: tuple[str, ...]) -> None:
        self.name = name
        self.near = near
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
        super().__init__(path, f"no headline has the :ID: or the title {name!r}{hint}")


class HeadlineAmbiguousError(PlanFileError, code="headline_ambiguous", exit_code=Exit.USAGE):
    def __init__(self, path: str, name: str, lines: tuple[int, ...], *, kind: str) -> None:
        self.name = name
        self.lines = lines
        shown = ", ".join(map(str, lines[:_SHOWN])) + (", …" if len(lines) > _SHOWN else "")
        remedy = "give each its own" if kind == ":ID:" else "give the one you mean an :ID:"
        super().__init__(
            path, f"{len(lines)} headlines have the {kind} {name!r} (lines {shown}); {remedy}"
        )


class HeadlineVoidError(PlanFileError, code="headline_void"):
    """A headline whose drawer cannot be read, so nothing can be written into it."""


class HeadlineStampError(PlanFileError, code="headline_stamp"):
    def __init__(self, path: str, reason: str, *, line: int, column: int) -> None:
        super().__init__(path, reason, line=line, column=column)
        self.args = (f"{self.path}:{line}:{column}: {reason}",)


class Edit(NamedTuple):
    span: Span
    text: str


class Sequence(NamedTuple):
    """The states of one `#+TODO:` line, in their order."""

    open: tuple[str, ...]
    done: tuple[str, ...]
    entered: frozenset[str] = frozenset()  # states whose beginning is recorded, as in DONE(d!)
    left: frozenset[str] = frozenset()  # states whose end is recorded, as in WAIT(w/!)


class Completed(NamedTuple):
    file: str
    line: int
    title: str
    before: str | None
    after: str | None
    moved: tuple[tuple[str, str], ...]  # timestamps, as they were and as they are
    is_changed: bool = True
    is_disarmed: bool = False  # whether it had a rule of its own that no longer fires


def complete(
    file: StrPath,
    name: str,
    *,
    now: datetime,
    zone: str = "UTC",
    root: StrPath | None = None,
    limit: int = LIMIT,
) -> Completed:
    content = read_plan(file, root=root, limit=limit)
    plan = read(content.text)
    index = find(plan, name, path=content.path)
    headline, line = plan.headlines[index], plan.places()[index].line
    title, state = headline.title, headline.state
    if state in plan.states.done:
        return Completed(content.path, line, title, state, state, (), is_changed=False)
    moves = _moves(plan, index, now=now, zone=zone, path=content.path)
    edits = completion(plan, index, now=now, zone=zone, path=content.path)
    splices = splices_of(plan, index, edits)
    edit(content.path, splices, expected=content.digest, root=root, limit=limit)
    after = _reopened(plan, headline) if moves else _done_word(plan, headline)
    has_rule = is_fired(headline) and not {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)
    moved = tuple((headline.text[each.span.start : each.span.end], each.text) for each in moves)
    is_disarmed = has_rule and not moved
    return Completed(content.path, line, title, state, after, moved, is_disarmed=is_disarmed)


def find(plan: Plan, name: str, *, path: str) -> int:
    """Return which headline has this `:ID:`, or else exactly this title."""
    ids = [n for n, each in enumerate(plan.headlines) if each.props.get("ID") == name]
    found = ids or [n for n, each in enumerate(plan.headlines) if each.title == name]
    if len(found) == 1:
        return found[0]
    if not found:
        from difflib import get_close_matches  # only for the message

        names = {each.props.get("ID", each.title): None for each in plan.headlines[:2000]}
        names |= {each.title: None for each in plan.headlines[:2000]}
        near = get_close_matches(name, [each for each in names if each], n=3, cutoff=0.5)
        raise HeadlineMissingError(path, name, tuple(near))
    places = plan.places()
    lines = tuple(places[n].line for n in found)
    raise HeadlineAmbiguousError(path, name, lines, kind=":ID:" if ids else "title")


def sequences(plan: Plan) -> tuple[Sequence, ...]:
    found = []
    for section in (plan.preamble, *(each.text for each in plan.headlines)):
        if "#+" in section:
            found += [
                _sequence(each.value) for each in keywords(section) if each.key in _STATE_KEYS
            ]
    return (*(each for each in found if each.open or each.done), Sequence(("TODO",), ("DONE",)))


def _sequence(value: str) -> Sequence:
    """Return the states of one declaration.

    >>> _sequence("NEXT(n) DOING | DONE(d!) DROPPED")[:3]
    (('NEXT', 'DOING'), ('DONE', 'DROPPED'), frozenset({'DONE'}))
    """
    before, bar, after = value.partition("|")
    opened = [word.partition("(")[0] for word in before.split()]
    closed = [word.partition("(")[0] for word in after.replace("|", " ").split()]
    if not bar:
        opened, closed = opened[:-1], opened[-1:]
    asked = [_RECORDED.fullmatch(word) for word in value.split()]
    return Sequence(
        tuple(filter(None, opened)),
        tuple(filter(None, closed)),
        frozenset(word[1] for word in asked if word and word[2]),
        frozenset(word[1] for word in asked if word and word[3]),
    )


def sequence_of(plan: Plan, state: str | None) -> Sequence:
    known = sequences(plan)
    return next((each for each in known if state in each.open + each.done), known[0])


def completion(plan: Plan, index: int, *, now: datetime, zone: str, path: str) -> list[Edit]:
    headline = plan.headlines[index]
    moves = _moves(plan, index, now=now, zone=zone, path=path)
    stamp, word = written(now, zone), _done_word(plan, headline)
    record = []
    states = sequence_of(plan, headline.state)
    if word in states.entered or headline.state in states.left:
        # As in Org, the newest record is the first line of the text, below planning and drawer.
        was, quoted = f'"{headline.state}"' if headline.state else "", f'"{word}"'
        first = _FIRST_LINE.search(headline.text, headline.body)
        at = first.start() if first else len(headline.text)
        record = [_line_at(headline, at, f"- State {quoted:<12} from {was:<12} {stamp}")]
    if not moves:
        return [*state_edits(headline, word), _closed_edit(headline, stamp), *record]
    changes: dict[str, str | None] = {"LAST_REPEAT": stamp}
    if headline.state == "DOING":
        # It is free again, also for others.
        changes |= {"AGENT": None, "CLAIMED-UNTIL": None}
    return [
        *state_edits(headline, _reopened(plan, headline)),
        *moves,
        *_spent_edits(headline),
        *property_edits(headline, changes, path=path),
        *record,
    ]


def _line_at(headline: Headline, at: int, *lines: str) -> Edit:
    """Return the edit that adds lines; a file that ends without a newline stays so."""
    newline = _newline(headline)
    text, is_cut = newline.join(lines), not headline.text[:at].endswith("\n")
    return Edit(Span(at, at), f"{newline}{text}" if is_cut else f"{text}{newline}")


def written(moment: datetime, zone: str) -> str:
    """Return a time as Org records it.

    >>> from datetime import datetime
    >>> written(datetime.fromisoformat("2026-06-06T10:05Z"), "Europe/Berlin")
    '[2026-06-06 Sat 12:05]'
    """
    wall = local(moment, zone_named(zone))
    return f"[{wall:%Y-%m-%d} {_DAYS[wall.weekday()]} {wall:%H:%M}]"


def _done_word(plan: Plan, headline: Headline) -> str:
    done = sequence_of(plan, headline.state).done
    return done[0] if done else "DONE"


def _reopened(plan: Plan, headline: Headline) -> str | None:
    if headline.state is None:
        return None
    asked = headline.props.get("REPEAT_TO_STATE")
    if asked in plan.states.todo:
        return asked
    opened = sequence_of(plan, headline.state).open
    return opened[0] if opened else "TODO"


def _moves(plan: Plan, index: int, *, now: datetime, zone: str, path: str) -> list[Edit]:
    headline = plan.headlines[index]
    moves = []
    for span in _stamps(headline):
        text = headline.text[span.start : span.end]
        said = parse_timestamp(text)
        if said is None or said.repeat is None:
            continue
        try:
            moved = repeat(text, now=now, zone=zone)
        except ScheduleError as error:
            line = plan.places()[index].line + headline.text.count("\n", 0, span.start)
            column = span.start - headline.text.rfind("\n", 0, span.start)
            raise HeadlineStampError(path, str(error), line=line, column=column) from None
        if moved is not None:
            moves.append(Edit(span, moved))
    return moves


def _stamps(headline: Headline) -> Iterator[Span]:
    """Yield the active timestamps on the planning line, in the title and in the text."""
    planning, drawer = headline.planning, headline.drawer
    planned = [] if planning is None else [planning.scheduled, planning.deadline]
    yield from (Span(stamp.start, stamp.end) for stamp in planned if stamp is not None)
    aside = [Span(each.start, each.end) for each in (planning, drawer) if each is not None]
    text = bare(headline.text)
    for found in _ACTIVE.finditer(text):
        begin = text.rfind("\n", 0, found.start()) + 1
        is_comment = text[begin : found.start()].lstrip(" \t")[:2] in {"# ", "#"}
        if not is_comment and not any(a.start <= found.start() < a.end for a in aside):
            yield Span(found.start(), found.end())


def state_edits(headline: Headline, word: str | None) -> list[Edit]:
    span = parts(headline).state
    if word == headline.state:
        return []
    if word is None:
        blank = headline.text[span.end : span.end + 1] in {" ", "\t"}
        return [Edit(Span(span.start, span.end + blank), "")]
    return [Edit(span, word if headline.state else f"{word} ")]


def _closed_edit(headline: Headline, stamp: str) -> Edit:
    text, planning = headline.text, headline.planning
    if planning is None:
        return _line_at(headline, text.find("\n") + 1 or len(text), f"CLOSED: {stamp}")
    if planning.closed is not None:
        return Edit(Span(planning.closed.start, planning.closed.end), stamp)
    indent = _INDENT.match(text, planning.start)
    at = indent.end() if indent else planning.start
    return Edit(Span(at, at), f"CLOSED: {stamp} ")


def _newline(headline: Headline) -> str:
    end = headline.text.find("\n")
    return "\r\n" if headline.text[max(end - 1, 0) : end] == "\r" else "\n"


def _spent_edits(headline: Headline) -> list[Edit]:
    """Return the edits that remove what a headline that repeats does not keep.

    That is CLOSED, and a SCHEDULED that does not repeat beside a DEADLINE that does.
    """
    text, planning = headline.text, headline.planning
    if planning is None:
        return []
    scheduled, closed = planning.scheduled, planning.closed
    spent = [("CLOSED:", closed)] if closed is not None else []
    if scheduled is not None and scheduled.time is not None and scheduled.time.repeat is None:
        spent.append(("SCHEDULED:", scheduled))
    if len(spent) == sum(each is not None for each in (scheduled, planning.deadline, closed)):
        return [Edit(Span(planning.start, planning.end), "")]
    edits, line = [], planning.start
    for word, stamp in sorted(spent, key=lambda item: item[1].start):
        start, stop = text.rfind(word, 0, stamp.start), stamp.end
        before = len(text[line:start].rstrip(" \t,")) + line
        if before > line:
            edits.append(Edit(Span(before, stop), ""))
            continue
        # The first of the line, now or soon: what divides goes, and its own indent stays.
        after = _DIVIDER.match(text, stop)
        line = after.end() if after else stop
        edits.append(Edit(Span(start, line), ""))
    return edits


def property_edits(
    headline: Headline, changes: Mapping[str, str | None], *, path: str
) -> list[Edit]:
    text, drawer = headline.text, headline.drawer
    if drawer is None:
        new = [f":{key}: {value}" for key, value in changes.items() if value is not None]
        if new and _DRAWER.match(text, headline.body):
            why = (
                f"the drawer of {headline.title!r} cannot be read; run `horae check` for the reason"
            )
            raise HeadlineVoidError(path, why)
        return [_line_at(headline, headline.body, ":PROPERTIES:", *new, ":END:")] if new else []
    lines = list(properties(text, drawer))
    news = {
        key: value
        for key, value in changes.items()
        if value is not None and value != headline.props.get(key)
    }
    last: dict[str, Property] = {}  # of several, the last one counts; `:KEY+:` only adds to it
    for line in lines:
        if not line.adds or last.get(line.key, line).adds:
            last[line.key] = line
    gone = [
        line
        for line in lines
        if (line.key in changes and changes[line.key] is None)
        or (line.key in news and line.adds and line is not last[line.key])
    ]
    if len(gone) == len(lines) and not news:
        return [Edit(Span(drawer.start, drawer.end), "")] if gone else []
    edits = [Edit(line.line, "") for line in gone]
    edits += [Edit(last[key].at, value) for key, value in news.items() if key in last]
    if missing := {key: value for key, value in news.items() if key not in last}:
        at = text.rfind("\n", drawer.start, drawer.end - 1) + 1
        indent = _INDENT.match(text, at)
        blank, newline = indent[0] if indent else "", _newline(headline)
        rows = "".join(f"{blank}:{key}: {value}{newline}" for key, value in missing.items())
        edits.append(Edit(Span(at, at), rows))
    return edits


def splices_of(plan: Plan, index: int, edits: Iterable[Edit]) -> list[Splice]:
    return [
        Splice(*plan.byte_span(index, each.span), each.text.encode("utf-8", "surrogatepass"))
        for each in sorted(edits, key=lambda each: each.span)
    ]


def changed(plan: Plan, index: int, edits: Iterable[Edit], data: bytes) -> bytes:
    return spliced(data, splices_of(plan, index, edits))
