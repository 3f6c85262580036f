"""Edits of a headline: its state, its planning line and its properties, and nothing else.

`complete` does what Emacs Org does when a headline is done. One with a repeater moves to its next
date, is open again and gets the time in `:LAST_REPEAT:`; any other gets its done state and the time
in `CLOSED:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from horae.errors import Exit, ScheduleError
from horae.files.edit import Splice, edit
from horae.files.read import LIMIT, PlanFileError, StrPath, read_plan
from horae.org.check import is_fired
from horae.org.document import STATE_KEYS, bare, keywords, read, state_words
from horae.org.headline import parts, properties
from horae.org.plan import Headline, Plan, Span, parse_timestamp
from horae.timing.repeater import repeat, stamp_text
from horae.timing.zone import local, zone as zone_named

_ACTIVE: Final = re.compile(r"<[0-9]{4}-[0-9]{2}-[0-9]{2}[^<>\n]*+>")
_DRAWER: Final = re.compile(r"[ \t]*+:PROPERTIES:[ \t]*+\r?(?:\n|\Z)", re.IGNORECASE)
_FIRST_LINE: Final = re.compile(r"^[ \t]*+[^\s]", re.MULTILINE)  # that is not blank
_INDENT: Final = re.compile(r"[ \t]*+")
_DIVIDER: Final = re.compile(r"[ \t]*+,?+[ \t]*+")
_RECORDED: Final = re.compile(r"([^(]+)\([^!@/]?([!@])?(?:/([!@]))?\)")
_SHOWN: Final = 5


class HeadlineMissingError(PlanFileError, code="headline_missing", exit_code=Exit.NOT_FOUND):
    def __init__(self, path: str, name: str, near: tuple[str, ...]) -> None:
        self.name, self.near = name, near
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
        super().__init__(path, f"no headline has the :ID: or the title {name!r}{hint}")


class HeadlineAmbiguousError(PlanFileError, code="headline_ambiguous", exit_code=Exit.USAGE):
    def __init__(self, path: str, name: str, lines: tuple[int, ...], *, kind: str) -> None:
        self.name, self.lines = name, lines
        shown = ", ".join(map(str, lines[:_SHOWN])) + (", …" if len(lines) > _SHOWN else "")
        remedy = "give each its own" if kind == ":ID:" else "give the one you mean an :ID:"
        super().__init__(
            path, f"{len(lines)} headlines have the {kind} {name!r} (lines {shown}); {remedy}"
        )


class HeadlineVoidError(PlanFileError, code="headline_void"): ...


class HeadlineStampError(PlanFileError, code="headline_stamp"):
    def __init__(self, path: str, reason: str, *, line: int, column: int) -> None:
        super().__init__(path, reason, line=line, column=column)
        self.args = (f"{self.path}:{line}:{column}: {reason}",)


class Edit(NamedTuple):
    span: Span
    text: str


class Sequence(NamedTuple):
    open: tuple[str, ...]
    done: tuple[str, ...]
    entered: frozenset[str] = frozenset()  # states recorded when entered, as in DONE(d!)
    left: frozenset[str] = frozenset()  # states recorded when left, as in WAIT(w/!)


class Completed(NamedTuple):
    file: str
    line: int
    title: str
    before: str | None
    after: str | None
    moved: tuple[tuple[str, str], ...]  # timestamps before and after
    is_changed: bool = True
    is_disarmed: bool = False  # whether a rule of its own no longer fires


def complete(
    file: StrPath, name: str, *, now: datetime, zone: str = "UTC", limit: int = LIMIT
) -> Completed:
    content = read_plan(file, limit=limit)
    here = find(read(content.text), name, path=content.path)
    headline, state = here.headline, here.headline.state
    where = (content.path, here.plan.places()[here.index].line, headline.title)
    if state in here.plan.states.done:
        return Completed(*where, state, state, (), is_changed=False)
    after, moves, edits = here.completion(now=now, zone=zone)
    edit(content.path, here.splices(edits), expected=content.digest, limit=limit)
    has_rule = is_fired(headline) and not {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)
    moved = tuple((headline.text[each.span.start : each.span.end], each.text) for each in moves)
    return Completed(*where, state, after, moved, is_disarmed=has_rule and not moved)


def find(plan: Plan, name: str, *, path: str) -> PlanHeadline:
    ids = [n for n, each in enumerate(plan.headlines) if each.props.get("ID") == name]
    found = ids or [n for n, each in enumerate(plan.headlines) if each.title == name]
    if len(found) == 1:
        return PlanHeadline(plan, found[0], path)
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
            declared = (each for each in keywords(section) if each.key in STATE_KEYS)
            found += [_sequence(each.value) for each in declared]
    return (*(each for each in found if each.open or each.done), Sequence(("TODO",), ("DONE",)))


def _sequence(value: str) -> Sequence:
    """Parse one declaration, such as `NEXT(n) DOING | DONE(d!) DROPPED`."""
    opened, closed = state_words(value)
    asked = [_RECORDED.fullmatch(word) for word in value.split()]
    entered, left = (frozenset(word[1] for word in asked if word and word[n]) for n in (2, 3))
    return Sequence(tuple(opened), tuple(closed), entered, left)


def sequence_of(plan: Plan, state: str | None) -> Sequence:
    known = sequences(plan)
    return next((each for each in known if state in each.open + each.done), known[0])


def written(moment: datetime, zone: str) -> str:
    """Return a time as Org records it: [2026-06-06 Sat 12:05]."""
    return f"[{stamp_text(local(moment, zone_named(zone)), None)[1:-1]}]"


@dataclass(frozen=True, slots=True)
class PlanHeadline:
    plan: Plan
    index: int
    path: str

    @property
    def headline(self) -> Headline:
        return self.plan.headlines[self.index]

    def splices(self, edits: Iterable[Edit]) -> list[Splice]:
        return [
            Splice(
                *self.plan.byte_span(self.index, each.span),
                each.text.encode("utf-8", "surrogatepass"),
            )
            for each in sorted(edits, key=lambda each: each.span)
        ]

    def completion(self, *, now: datetime, zone: str) -> tuple[str | None, list[Edit], list[Edit]]:
        """Return the state of the headline once it is done, the dates that move, and all edits."""
        headline, state = self.headline, self.headline.state
        moves = self._moves(now=now, zone=zone)
        states, stamp = sequence_of(self.plan, state), written(now, zone)
        word = states.done[0] if states.done else "DONE"
        record = []
        if word in states.entered or state in states.left:
            # As in Org, the newest record is the first line of the text, below planning and drawer.
            was, quoted = f'"{state}"' if state else "", f'"{word}"'
            first = _FIRST_LINE.search(headline.text, headline.body)
            at = first.start() if first else len(headline.text)
            record = [self._line_at(at, f"- State {quoted:<12} from {was:<12} {stamp}")]
        if not moves:
            return word, [], [*self.state_edits(word), self._closed_edit(stamp), *record]
        asked = headline.props.get("REPEAT_TO_STATE")
        opened = states.open[0] if states.open else "TODO"
        again = None if state is None else asked if asked in self.plan.states.todo else opened
        changes: dict[str, str | None] = {"LAST_REPEAT": stamp}
        if state == "DOING":
            # Other agents may claim it again.
            changes |= {"AGENT": None, "CLAIMED-UNTIL": None}
        edits = [*self.state_edits(again), *moves, *self._spent_edits()]
        return again, moves, [*edits, *self.property_edits(changes), *record]

    def _line_at(self, at: int, *lines: str) -> Edit:
        text, is_cut = self._newline.join(lines), not self.headline.text[:at].endswith("\n")
        return Edit(Span(at, at), f"{self._newline}{text}" if is_cut else f"{text}{self._newline}")

    @property
    def _newline(self) -> str:
        end = self.headline.text.find("\n")
        return "\r\n" if self.headline.text[max(end - 1, 0) : end] == "\r" else "\n"

    def _moves(self, *, now: datetime, zone: str) -> list[Edit]:
        section = self.headline.text
        moves = []
        for span in self._stamps():
            text = section[span.start : span.end]
            said = parse_timestamp(text)
            if said is None or said.repeat is None:
                continue
            try:
                moved = repeat(text, now=now, zone=zone)
            except ScheduleError as error:
                line = self.plan.places()[self.index].line + section.count("\n", 0, span.start)
                column = span.start - section.rfind("\n", 0, span.start)
                raise HeadlineStampError(self.path, str(error), line=line, column=column) from None
            if moved is not None:
                moves.append(Edit(span, moved))
        return moves

    def _stamps(self) -> Iterator[Span]:
        planning, drawer = self.headline.planning, self.headline.drawer
        planned = [] if planning is None else [planning.scheduled, planning.deadline]
        yield from (Span(stamp.start, stamp.end) for stamp in planned if stamp is not None)
        aside = [Span(each.start, each.end) for each in (planning, drawer) if each is not None]
        text = bare(self.headline.text)
        for found in _ACTIVE.finditer(text):
            begin = text.rfind("\n", 0, found.start()) + 1
            is_comment = text[begin : found.start()].lstrip(" \t")[:2] in {"# ", "#"}
            if not is_comment and not any(a.start <= found.start() < a.end for a in aside):
                yield Span(found.start(), found.end())

    def state_edits(self, word: str | None) -> list[Edit]:
        headline = self.headline
        span = parts(headline).state
        if word == headline.state:
            return []
        if word is None:
            blank = headline.text[span.end : span.end + 1] in {" ", "\t"}
            return [Edit(Span(span.start, span.end + blank), "")]
        return [Edit(span, word if headline.state else f"{word} ")]

    def _closed_edit(self, stamp: str) -> Edit:
        text, planning = self.headline.text, self.headline.planning
        if planning is None:
            return self._line_at(text.find("\n") + 1 or len(text), f"CLOSED: {stamp}")
        if planning.closed is not None:
            return Edit(Span(planning.closed.start, planning.closed.end), stamp)
        indent = _INDENT.match(text, planning.start)
        at = indent.end() if indent else planning.start
        return Edit(Span(at, at), f"CLOSED: {stamp} ")

    def _spent_edits(self) -> list[Edit]:
        text, planning = self.headline.text, self.headline.planning
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
            # The first of the line: its separator is removed, and the indentation stays.
            after = _DIVIDER.match(text, stop)
            line = after.end() if after else stop
            edits.append(Edit(Span(start, line), ""))
        return edits

    def property_edits(self, changes: Mapping[str, str | None]) -> list[Edit]:
        headline, text, drawer = self.headline, self.headline.text, self.headline.drawer
        if drawer is None:
            new = [f":{key}: {value}" for key, value in changes.items() if value is not None]
            if new and _DRAWER.match(text, headline.body):
                why = f"the drawer of {headline.title!r} cannot be read"
                raise HeadlineVoidError(self.path, f"{why}; run `horae check` for the reason")
            return [self._line_at(headline.body, ":PROPERTIES:", *new, ":END:")] if new else []
        lines = list(properties(text, drawer))
        news = {
            key: value
            for key, value in changes.items()
            if value is not None and value != headline.props.get(key)
        }
        # Of several lines the last one counts; `:KEY+:` only adds to it.
        last = {line.key: line for line in sorted(lines, key=lambda line: not line.adds)}
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
            blank, end = indent[0] if indent else "", self._newline
            rows = "".join(f"{blank}:{key}: {value}{end}" for key, value in missing.items())
            edits.append(Edit(Span(at, at), rows))
        return edits
