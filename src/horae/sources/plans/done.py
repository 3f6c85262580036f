"""A headline changed in its place: its state, its planning line, its properties, and nothing else.

`complete` does what Emacs Org does when a headline is done. One that repeats moves on to its next
date, is open again and remembers in `:LAST_REPEAT:` when that was; any other gets its done word
and the moment in `CLOSED:`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.errors import Exit, ScheduleError
from horae.files.edit import Splice, edit, spliced
from horae.files.read import LIMIT, PlanFileError, StrPath, read_plan
from horae.org.check.finding import is_fired
from horae.org.document import read
from horae.org.drawer import properties
from horae.org.element import bare, keywords
from horae.org.headline import parts
from horae.org.plan import Span
from horae.org.timestamp import parse_timestamp
from horae.timing.repeater import repeat
from horae.timing.zone import local, zone as zone_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from horae.org.plan import Headline, Plan, Property, Stamp

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ACTIVE: Final = re.compile(r"<[0-9]{4}-[0-9]{2}-[0-9]{2}[^<>\n]*+>")
_DRAWER: Final = re.compile(r"[ \t]*+:PROPERTIES:[ \t]*+\r?(?:\n|\Z)", re.IGNORECASE)
_FIRST_LINE: Final = re.compile(r"^[ \t]*+[^\s]", re.MULTILINE)  # that is not blank
_INDENT: Final = re.compile(r"[ \t]*+")
_DIVIDER: Final = re.compile(r"[ \t]*+,?+[ \t]*+")
_RECORDED: Final = re.compile(r"([^(]+)\([^!@/]?([!@])?(?:/([!@]))?\)")
_STATE_KEYS: Final = frozenset({"TODO", "SEQ_TODO", "TYP_TODO"})
_SHOWN: Final = 5


class HeadlineMissingError(PlanFileError):
    """A headline that is not in its file."""

    code = "headline_missing"
    exit_code = Exit.NOT_FOUND

    def __init__(self, path: str, name: str, near: tuple[str, ...]) -> None:
        self.name = name
        self.near = near
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
        super().__init__(path, f"no headline has the :ID: or the title {name!r}{hint}")


class HeadlineAmbiguousError(PlanFileError):
    """A name that several headlines have."""

    code = "headline_ambiguous"
    exit_code = Exit.USAGE

    def __init__(self, path: str, name: str, lines: tuple[int, ...], *, kind: str) -> None:
        self.name = name
        self.lines = lines
        shown = ", ".join(map(str, lines[:_SHOWN])) + (", …" if len(lines) > _SHOWN else "")
        remedy = "give each its own" if kind == ":ID:" else "give the one you mean an :ID:"
        super().__init__(
            path, f"{len(lines)} headlines have the {kind} {name!r} (lines {shown}); {remedy}"
        )


class HeadlineVoidError(PlanFileError):
    """A headline whose drawer cannot be read, so nothing can be written into it."""

    code = "headline_void"


class HeadlineStampError(PlanFileError):
    """A timestamp that repeats, and of which nobody can tell what comes next."""

    code = "headline_stamp"

    def __init__(self, path: str, reason: str, *, line: int, column: int) -> None:
        super().__init__(path, reason, line=line, column=column)
        self.args = (f"{self.path}:{line}:{column}: {reason}",)


class Edit(NamedTuple):
    """New text for a span of a section."""

    span: Span
    text: str


class Sequence(NamedTuple):
    """The states of one `#+TODO:` line, in their order."""

    open: tuple[str, ...]
    done: tuple[str, ...]
    entered: frozenset[str] = frozenset()  # states whose beginning is recorded, as in DONE(d!)
    left: frozenset[str] = frozenset()  # states whose end is recorded, as in WAIT(w/!)


class Completed(NamedTuple):
    """What became of a headline that was done."""

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
    """Note in *file* that the headline with this `:ID:` or title is done; return what changed."""
    content = read_plan(file, root=root, limit=limit)
    plan = read(content.text)
    index = find(plan, name, path=content.path)
    done = _completed(plan, index, content.path, now=now, zone=zone)
    if done.is_changed:
        edits = completion(plan, index, now=now, zone=zone, path=content.path)
        splices = splices_of(plan, index, edits)
        edit(content.path, splices, expected=content.digest, root=root, limit=limit)
    return done


def find(plan: Plan, name: str, *, path: str) -> int:
    """Return which headline has this `:ID:`, or else exactly this title."""
    ids = [n for n, each in enumerate(plan.headlines) if each.props.get("ID") == name]
    found = ids or [n for n, each in enumerate(plan.headlines) if each.title == name]
    if len(found) == 1:
        return found[0]
    if not found:
        raise HeadlineMissingError(path, name, _near(plan, name))
    places = plan.places()
    lines = tuple(places[n].line for n in found)
    raise HeadlineAmbiguousError(path, name, lines, kind=":ID:" if ids else "title")


def _near(plan: Plan, name: str) -> tuple[str, ...]:
    from difflib import get_close_matches  # only for the message

    names = {each.props.get("ID", each.title): None for each in plan.headlines[:2000]}
    names |= {each.title: None for each in plan.headlines[:2000]}
    return tuple(get_close_matches(name, [each for each in names if each], n=3, cutoff=0.5))


def sequences(plan: Plan) -> tuple[Sequence, ...]:
    """Return the state words as the file declares them, and last the two that every file has."""
    found = []
    for section in (plan.preamble, *(each.text for each in plan.headlines)):
        if "#+" in section:
            found += [
                _sequence(each.value) for each in keywords(section) if each.key in _STATE_KEYS
            ]
    return (*(each for each in found if each.open or each.done), Sequence(("TODO",), ("DONE",)))


def _sequence(value: str) -> Sequence:
    """Return the words of one declaration.

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
    """Return the sequence that a state belongs to; one without a state goes by the first."""
    known = sequences(plan)
    return next((each for each in known if state in each.open + each.done), known[0])


def _completed(plan: Plan, index: int, path: str, *, now: datetime, zone: str) -> Completed:
    headline = plan.headlines[index]
    line = plan.places()[index].line
    if headline.state in plan.states.done:
        state = headline.state
        return Completed(path, line, headline.title, state, state, (), is_changed=False)
    moved = tuple(
        (headline.text[span.start : span.end], new)
        for span, new in _moves(plan, index, now=now, zone=zone, path=path)
    )
    after = _reopened(plan, headline) if moved else _done_word(plan, headline)
    has_rule = is_fired(headline) and not {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)
    return Completed(
        path,
        line,
        headline.title,
        headline.state,
        after,
        moved,
        is_disarmed=has_rule and not moved,
    )


def completion(plan: Plan, index: int, *, now: datetime, zone: str, path: str) -> list[Edit]:
    """Return the edits that note that a headline was done now."""
    headline = plan.headlines[index]
    moves = list(_moves(plan, index, now=now, zone=zone, path=path))
    stamp = written(now, zone)
    record = _record_edits(plan, headline, stamp)
    if not moves:
        word = _done_word(plan, headline)
        return [*state_edits(headline, word), *_closed_edits(headline, stamp), *record]
    changes: dict[str, str | None] = {"LAST_REPEAT": stamp}
    if headline.state == "DOING":
        # It is free again, also for others.
        changes |= {"AGENT": None, "CLAIMED-UNTIL": None}
    return [
        *state_edits(headline, _reopened(plan, headline)),
        *(Edit(*move) for move in moves),
        *_spent_edits(headline),
        *property_edits(headline, changes, path=path),
        *record,
    ]


def _record_edits(plan: Plan, headline: Headline, stamp: str) -> list[Edit]:
    """Return the edit that records a change of state, if the file's `#+TODO:` asks for it.

    As in Org, the newest record is the first line of the text, below planning line and drawer.
    """
    states, word = sequence_of(plan, headline.state), _done_word(plan, headline)
    if word not in states.entered and headline.state not in states.left:
        return []
    was = f'"{headline.state}"' if headline.state else ""
    quoted = f'"{word}"'
    line = f"- State {quoted:<12} from {was:<12} {stamp}"
    first = _FIRST_LINE.search(headline.text, headline.body)
    at = first.start() if first else len(headline.text)
    newline = _newline(headline)
    is_cut = not headline.text[:at].endswith("\n")
    return [Edit(Span(at, at), f"{newline}{line}" if is_cut else f"{line}{newline}")]


def written(moment: datetime, zone: str) -> str:
    """Return a moment as Org records it.

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
    """Return the state of a headline that comes round again; one without a state has none."""
    if headline.state is None:
        return None
    asked = headline.props.get("REPEAT_TO_STATE")
    if asked in plan.states.todo:
        return asked
    opened = sequence_of(plan, headline.state).open
    return opened[0] if opened else "TODO"


def _moves(
    plan: Plan, index: int, *, now: datetime, zone: str, path: str
) -> Iterator[tuple[Span, str]]:
    """Yield each active timestamp that repeats, and what it moves to."""
    headline = plan.headlines[index]
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
            yield span, moved


def _stamps(headline: Headline) -> Iterator[Span]:
    """Yield where the active timestamps stand: on the planning line, in the title, in the text."""
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


def _closed_edits(headline: Headline, stamp: str) -> list[Edit]:
    """Return the edits that put CLOSED on the planning line, where Org has it: first."""
    text, planning = headline.text, headline.planning
    if planning is None:
        return [_line_after_title(headline, f"CLOSED: {stamp}")]
    if planning.closed is not None:
        return [Edit(Span(planning.closed.start, planning.closed.end), stamp)]
    indent = _INDENT.match(text, planning.start)
    at = indent.end() if indent else planning.start
    return [Edit(Span(at, at), f"CLOSED: {stamp} ")]


def _line_after_title(headline: Headline, line: str) -> Edit:
    end = headline.text.find("\n") + 1
    if end:
        return Edit(Span(end, end), f"{line}{_newline(headline)}")
    at = len(headline.text)
    return Edit(Span(at, at), f"\n{line}")


def _newline(headline: Headline) -> str:
    """Return how the headline's lines end."""
    end = headline.text.find("\n")
    return "\r\n" if headline.text[max(end - 1, 0) : end] == "\r" else "\n"


def _spent_edits(headline: Headline) -> list[Edit]:
    """Return the edits that remove what a headline that comes round does not keep.

    That is the moment it was closed, and a SCHEDULED that does not repeat beside one that does.
    """
    planning = headline.planning
    if planning is None:
        return []
    spent: list[tuple[str, Stamp]] = []
    if planning.closed is not None:
        spent.append(("CLOSED:", planning.closed))
    scheduled = planning.scheduled
    if scheduled is not None and scheduled.time is not None and scheduled.time.repeat is None:
        spent.append(("SCHEDULED:", scheduled))
    kept = [each for each in (scheduled, planning.deadline) if each is not None]
    if len(kept) + (planning.closed is not None) == len(spent):
        return [Edit(Span(planning.start, planning.end), "")]
    return list(_removals(headline.text, planning.start, spent))


def _removals(text: str, line: int, spent: Iterable[tuple[str, Stamp]]) -> Iterator[Edit]:
    """Yield the edits that take items, and the blanks that divide them, off a planning line."""
    for word, stamp in sorted(spent, key=lambda item: item[1].start):
        start, stop = text.rfind(word, 0, stamp.start), stamp.end
        before = len(text[line:start].rstrip(" \t,")) + line
        if before > line:
            yield Edit(Span(before, stop), "")
            continue
        # The first of the line, now or soon: what divides goes, and its own indent stays.
        after = _DIVIDER.match(text, stop)
        line = after.end() if after else stop
        yield Edit(Span(start, line), "")


def property_edits(
    headline: Headline, changes: Mapping[str, str | None], *, path: str
) -> list[Edit]:
    """Return the edits that set properties, or remove those that are to be None."""
    if headline.drawer is None:
        return _new_drawer(headline, changes, path=path)
    lines = list(properties(headline.text, headline.drawer))
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
        return [Edit(Span(headline.drawer.start, headline.drawer.end), "")] if gone else []
    edits = [Edit(line.line, "") for line in gone]
    edits += [Edit(last[key].at, value) for key, value in news.items() if key in last]
    missing = {key: value for key, value in news.items() if key not in last}
    return [*edits, *_more_lines(headline, missing)]


def _more_lines(headline: Headline, missing: Mapping[str, str]) -> list[Edit]:
    """Return the edit that writes new properties above the end of a drawer."""
    drawer = headline.drawer
    if drawer is None or not missing:
        return []
    at = headline.text.rfind("\n", drawer.start, drawer.end - 1) + 1
    indent = _INDENT.match(headline.text, at)
    blank, newline = indent[0] if indent else "", _newline(headline)
    text = "".join(f"{blank}:{key}: {value}{newline}" for key, value in missing.items())
    return [Edit(Span(at, at), text)]


def _new_drawer(headline: Headline, changes: Mapping[str, str | None], *, path: str) -> list[Edit]:
    """Return the edit that makes a drawer, if there is something to put into it."""
    text, at = headline.text, headline.body
    lines = [f":{key}: {value}" for key, value in changes.items() if value is not None]
    if not lines:
        return []
    if _DRAWER.match(text, at):
        reason = (
            f"the drawer of {headline.title!r} cannot be read; run `horae check` for the reason"
        )
        raise HeadlineVoidError(path, reason)
    newline = _newline(headline)
    drawer = newline.join([":PROPERTIES:", *lines, ":END:"])
    is_cut = not text[:at].endswith("\n")  # the file ends without a newline, and so it stays
    return [Edit(Span(at, at), f"{newline}{drawer}" if is_cut else f"{drawer}{newline}")]


def splices_of(plan: Plan, index: int, edits: Iterable[Edit]) -> list[Splice]:
    """Return the edits of a headline as splices of its file."""
    return [
        Splice(*plan.byte_span(index, each.span), each.text.encode("utf-8", "surrogatepass"))
        for each in sorted(edits, key=lambda each: each.span)
    ]


def changed(plan: Plan, index: int, edits: Iterable[Edit], data: bytes) -> bytes:
    """Return the bytes of a file with the edits of one headline in them."""
    return spliced(data, splices_of(plan, index, edits))
