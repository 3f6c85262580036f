"""Diagnostics of a plan: text that may not do what its author meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import chain
from typing import Final, NamedTuple

from horae.org.document import bare, read
from horae.org.headline import drawer_void_at, has_end, planning_items, planning_void_at, properties
from horae.org.plan import (
    Diagnostic,
    Headline,
    Plan,
    SectionPlace,
    Severity,
    Stamp,
    Timestamp,
    is_id,
    parse_timestamp,
)
from horae.org.world import Component, every, worlds
from horae.timing.repeater import CLOCK, RepeaterError, parse_repeater

_WORD: Final = re.compile(r"\S+")


def check(text: str, *, name: str = "-") -> list[Diagnostic]:
    r"""Return the problems of a plan, in the order of its lines.

    >>> [str(found) for found in check("* Pay\nDEADLINE: <2026-6-6>\n", name="pay.org")]
    ["pay.org:2:11: error date-shape: '2026-6-6' is not a valid date, so this timestamp is ignored"]
    """
    return check_plans([(name, read(text))])


def check_plans(plans: Iterable[tuple[str, Plan]]) -> list[Diagnostic]:
    known: dict[str, str] = {}  # the place where each `:ID:` was first used
    found: list[Diagnostic] = []
    for name, plan in plans:
        places, preamble = plan.places(), plan.preamble.removeprefix("\ufeff")
        found += (each.located(name, SectionPlace(0, 1), preamble) for each in unspaced(preamble))
        for headline, place in zip(plan.headlines, places, strict=True):
            founds = chain.from_iterable(one(headline) for one in CHECKS)
            founds = chain(founds, _ids(headline, f"{name}:{place.line}", known))
            found += (each.located(name, place, headline.text) for each in founds)
        for index, each in wiring(plan):
            found.append(each.located(name, places[index], plan.headlines[index].text))
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


def _ids(headline: Headline, where: str, known: dict[str, str]) -> Iterator[SectionFinding]:
    name = headline.props.get("ID")
    if name is None:
        return
    at = place_of(headline, "ID")
    if not is_id(name):
        message = f"ID {shown(name)} is not valid: it is too long or has invalid characters"
        fix = "use at most 64 letters, digits, dots, _ and -, and not only dots"
        yield error(at, "id-grammar", message, fix)
    elif name in known:
        message = f"ID {name!r} is already used at {known[name]}; only one of the two is armed"
        yield error(at, "id-twice", message, "give one of the two another ID")
    else:
        known[name] = where


# Components that cannot run, or not as they seem to


def wiring(plan: Plan) -> Iterator[tuple[int, SectionFinding]]:
    found = list(every(worlds(plan)))
    owned = {component.at for world in found for component in world.components}
    makers: dict[str, str] = {}  # by output: the first workflow that has it
    for world in found:
        for puts in world.producers:
            makers.setdefault(puts, world.name)
    for world in found:
        headline = plan.headlines[world.at]
        is_empty = not world.components and not world.workflows
        is_commented = headline.title.split(None, 1)[:1] == ["COMMENT"]
        if is_empty and not is_commented and CALLS.isdisjoint(headline.props):
            message = f"workflow {shown(world.name)} has no components, so its runs do nothing"
            fix = "add a headline tagged :component: with a source block below it, or a :COMMAND:"
            yield world.at, warning(0, "workflow-empty", message, fix)
        for component in world.components:
            for each in component_findings(component, world.producers, makers):
                yield component.at, each
        for ring in world.rings:
            names = [each.name for each in (ring[0], *reversed(ring))]
            fix = "remove one :in, or connect it to a component outside the cycle"
            yield ring[0].at, error(0, "cycle", _waiting(names), fix)
    for index, headline in enumerate(plan.headlines):
        if "component" in headline.tags and "workflow" not in headline.tags and index not in owned:
            message = f"component {shown(headline.title)} is not below a workflow and never runs"
            fix = "put it below a headline tagged :workflow:"
            yield index, warning(0, "component-outside", message, fix)


def component_findings(
    component: Component, producers: Mapping[str, Component], makers: Mapping[str, str]
) -> Iterator[SectionFinding]:
    name, taken, puts = shown(component.name), component.takes, component.puts
    if component.block is None:
        yield error(0, "component-source", f"component {name} has no source block")
    elif component.block.lang[:1] in {"", ":", "-", "+"}:
        at, message = component.block.span.start, f"the source block of {name} has no language"
        yield error(at, "component-language", message, "write the language after #+begin_src")
    if taken is not None and taken not in producers:
        at = _argument(component, ":in", taken)
        if taken in makers:
            message = (
                f"input {shown(taken)} is an output of workflow {shown(makers[taken])}, "
                "not of this one; workflows do not share outputs, not even nested ones"
            )
            fix = "move one of the two components into the workflow of the other"
            yield error(at, "input-scope", message, fix)
        else:
            message = f"input {shown(taken)} is not the output of any component"
            message += ", so the step gets the input of its workflow"
            yield error(at, "input-dangling", message, f"add :out {taken} to a component")
    if puts is not None and producers[puts].at != component.at:
        winner = shown(producers[puts].name)
        message = f"{shown(puts)} is also an output of {winner}; the later one is used"
        at = _argument(component, ":out", puts)
        yield warning(at, "producer-twice", message, "give each output its own name")


def _waiting(names: Sequence[str]) -> str:
    """Return the message for a cycle, whose first name is repeated at its end."""
    if len(names) == 2:
        return f"component {shown(names[0])} depends on itself"
    told = [shown(name) for name in (names if len(names) < 9 else [*names[:4], *names[-2:]])]
    if len(names) >= 9:
        told.insert(4, f"{len(names) - 6} more")
    return f"these components depend on each other: {' ← '.join(told)}"


def _argument(component: Component, key: str, value: str) -> int:
    block = component.block
    if block is None:
        return 0
    words = list(_WORD.finditer(block.opening))
    for word, after in zip(reversed(words[:-1]), reversed(words), strict=True):
        if word[0] == key and after[0] == value:
            return block.span.start + word.start()
    return block.span.start


CALLS: Final = frozenset({"COMMAND", "POST"})  # what a headline may call instead of components
_LONGEST: Final = 60


class SectionFinding(NamedTuple):
    at: int
    code: str
    severity: Severity
    message: str
    fix: str | None = None
    width: int = 0  # of the words to underline, if that helps

    def located(self, file: str, place: SectionPlace, text: str) -> Diagnostic:
        line = place.line + text.count("\n", 0, self.at)
        column = self.at - text.rfind("\n", 0, self.at)
        return Diagnostic(file, line, column, *self[1:])


def error(at: int, code: str, message: str, fix: str | None = None) -> SectionFinding:
    return SectionFinding(at, code, Severity.ERROR, message, fix)


def warning(at: int, code: str, message: str, fix: str | None = None) -> SectionFinding:
    return SectionFinding(at, code, Severity.WARNING, message, fix)


Check = Callable[["Headline"], Iterator[SectionFinding]]


def place_of(headline: Headline, key: str) -> int:
    lines = properties(headline.text, headline.drawer) if headline.drawer else ()
    return max((line.at.start for line in lines if line.key == key and line.value), default=0)


def is_fired(headline: Headline) -> bool:
    return "workflow" in headline.tags or not CALLS.isdisjoint(headline.props)


def shown(text: str) -> str:
    """Return *text* for a message: quoted, shortened, without control characters."""
    return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def line_at(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[at : end if end >= 0 else len(text)].rstrip("\r")


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ALMOST: Final = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})", re.ASCII)
_OTHER: Final = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8}", re.ASCII)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_UNSIGNED: Final = re.compile(r"[1-9][0-9]{0,5}[hdwmy]")  # a repeater without its sign
_RANGE: Final = re.compile(r"[>\]]--[<\[]")
_RANGE_MIDDLE: Final = re.compile(r"(?<=[>\]])--(?=[<\[])")
_PROSE: Final = re.compile(
    r"^[ \t]*+(?:#[ \t]|(?i:scheduled|deadline|closed):)[^\n]*+"  # a comment or planning
    r"|(<\d{4}-\d\d-\d\d[^<>\n]{0,60}>)",
    re.ASCII | re.MULTILINE,
)
_FULL: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY_NAMES: Final = {name.lower(): day[:3] for day in _FULL for name in (day, day[:3])}
_ONE_DAY: Final = "write <YYYY-MM-DD HH:MM-HH:MM>"
_CLOSE: Final = {"<": ">", "[": "]"}


def planning_findings(headline: Headline) -> Iterator[SectionFinding]:
    planning = headline.planning
    if planning is None:
        return
    for stamp in (planning.scheduled, planning.deadline, planning.closed):
        if stamp is None:
            continue
        is_range = _RANGE.search(stamp.text) is not None
        if is_range:
            fires = is_fired(headline) and {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)
            yield _range(stamp, fires=stamp is planning.scheduled and fires)
        if stamp.time is not None:
            yield from _odd(stamp, stamp.time, is_range=is_range)
        elif not is_range:
            yield _silent(stamp)


def _range(stamp: Stamp, *, fires: bool) -> SectionFinding:
    fix = _one_stamp(stamp.text)
    what = "a range of two timestamps"
    if fires:
        message = f"{what} does not say how often to run, so the entry is not armed"
        return error(stamp.start, "range", message, fix)
    if stamp.time is None:
        return error(stamp.start, "range", f"{what} has no effect here", fix)
    message = f"{what} is read as one; only one date and the last time are used"
    return warning(stamp.start, "range", message, fix)


def _one_stamp(text: str) -> str:
    first, second = _RANGE_MIDDLE.split(text, maxsplit=1)
    begin, end = parse_timestamp(first), parse_timestamp(second)
    if begin is None or end is None:
        return _ONE_DAY
    day, _, _ = begin.at.partition("T")
    last, _, time = end.at.partition("T")
    if day == last and begin.at != day and time and "-" not in begin.at[len(day) :] + time:
        return f"write {first[:-1]}-{time}{first[-1]}"
    if begin.repeat is not None:
        return f"write {first}"
    return (
        f"write {first}; to run on each day, write {first[:-1]} +1d{first[-1]} with :UNTIL: {last}"
    )


def _silent(stamp: Stamp) -> SectionFinding:
    text = stamp.text
    single = text[0] + text.strip("<>[]") + _CLOSE[text[0]]
    if text[-1] != single[-1] or (single != text and parse_timestamp(single) is not None):
        message = f"the brackets of {shown(text)} are not one pair, so it is ignored"
        return error(stamp.start, "brackets", message, single)
    if text.startswith("<%%("):
        message = "diary expressions are not supported; write a date, or a cron :SCHEDULE: property"
        return error(stamp.start, "diary", message)
    for token in text[1:-1].split():
        meant = _corrected(token)
        if meant is not None:
            message = f"{shown(token)} is not a valid date, so this timestamp is ignored"
            fix = text.replace(token, meant, 1) if meant else "write it as YYYY-MM-DD"
            return error(stamp.start, "date-shape", message, fix)
    message = f"{shown(text)} has no date, so it is ignored"
    return error(stamp.start, "date-missing", message, "write it as <YYYY-MM-DD>")


def _corrected(token: str) -> str | None:
    """Return the corrected form of an almost-date; "" if unknown, None if it is not one."""
    if iso := _ISO.fullmatch(token):
        return f"{iso[1]} {iso[2]}" if _real_date(iso[1]) else ""
    if almost := _ALMOST.fullmatch(token):
        padded = f"{almost[1]}-{almost[3]:0>2}-{almost[4]:0>2}"
        return padded if _real_date(padded) else ""
    return "" if _OTHER.fullmatch(token) else None


def _odd(stamp: Stamp, time_of: Timestamp, *, is_range: bool) -> Iterator[SectionFinding]:
    at, text = stamp.start, stamp.text
    written, _, time = time_of.at.partition("T")
    tokens = text[1:-1].split()
    day = _real_date(written)
    if day is None:
        yield error(at, "date-impossible", f"the date {shown(written)} does not exist")
    elif not is_range:
        yield from _day_name(stamp, day, tokens)
    if time and not CLOCK.fullmatch(time):
        message = f"the time {shown(time)} does not exist"
        fix = "write a time from 00:00 to 23:59, as HH:MM"
        yield error(at, "time-impossible", message, fix)
    if time_of.repeat is not None:
        yield from _repeater(at, time_of.repeat, has_time=bool(time))
    elif unsigned := next(filter(_UNSIGNED.fullmatch, tokens), None):
        message = f"{shown(unsigned)} is ignored, so this timestamp does not repeat"
        yield warning(at, "repeater-sign", message, text.replace(unsigned, f"+{unsigned}"))
    if not is_range:
        yield from _said_twice(at, tokens)


def _real_date(text: str) -> date | None:
    with suppress(ValueError):  # there is no such day
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    return None


def _day_name(stamp: Stamp, day: date, tokens: list[str]) -> Iterator[SectionFinding]:
    right = _FULL[day.weekday()][:3]
    for token in tokens:
        named = _DAY_NAMES.get(token.rstrip(".").lower())
        if named is not None and named != right:
            message = f"{day} is a {right}, not a {token}; the date is used"
            fix = stamp.text.replace(token, right, 1)
            yield warning(stamp.start, "day-name", message, fix)
            return  # one is enough: a timestamp may contain any number of words


def _repeater(at: int, text: str, *, has_time: bool) -> Iterator[SectionFinding]:
    try:
        parse_repeater(text, has_time=has_time)
    except RepeaterError as wrong:
        what, fix = wrong.parts
        yield error(at, f"repeater-{wrong.fault}", f"repeater {shown(text)}: {what}", fix or None)


def _said_twice(at: int, tokens: list[str]) -> Iterator[SectionFinding]:
    dates = [token for token in tokens if _DATE.fullmatch(token)]
    times = [token for token in tokens if ":" in token]
    repeaters = [token for token in tokens if ":" not in token and token.startswith(("+", ".+"))]
    for code, what, found, counts in (
        ("date-twice", "dates", dates, 0),
        ("time-twice", "times", times, -1),
        ("repeater-twice", "repeaters", repeaters, -1),
    ):
        if len(found) > 1:
            message = f"{len(found)} {what} in one timestamp; {shown(found[counts])} is used"
            yield warning(at, code, message, "keep the one you mean")


def _never_fires(headline: Headline) -> Iterator[SectionFinding]:
    if not is_fired(headline) or "SCHEDULE" in headline.props:
        return
    planning = headline.planning
    if headline.scheduled is not None:
        if not headline.scheduled.active and planning and planning.scheduled:
            message = "SCHEDULED in square brackets is inactive: it is recorded but never fires"
            yield SectionFinding(planning.scheduled.start, "inactive", Severity.INFO, message)
        return
    if (planning and planning.scheduled) or "AFTER" in headline.props:
        return  # its timestamp has been reported; or it follows other entries
    if planning and headline.deadline is not None and planning.deadline:
        message = "this entry has only a DEADLINE, which never fires"
        fix = "add SCHEDULED: with the time to run"
        yield warning(planning.deadline.start, "deadline-only", message, fix)
        return
    if "workflow" not in headline.tags:
        return  # a command that runs on request may have times in its text
    # The first active timestamp in title or text, outside blocks and comments.
    text, start = bare(headline.text, headline.body), headline.below
    found = chain(_PROSE.finditer(text, 0, start), _PROSE.finditer(text, headline.body))
    if (prose := next((each for each in found if each[1]), None)) is not None:
        message = f"{shown(prose[1])} in the text does not schedule this workflow"
        fix = f"put SCHEDULED: {prose[1]} on the line under the headline"
        yield warning(prose.start(1), "prose-timestamp", message, fix)


def _both(headline: Headline) -> Iterator[SectionFinding]:
    if not is_fired(headline):
        return
    props, planning, stamp = headline.props, headline.planning, headline.scheduled
    written = [(f":{key}:", props[key]) for key in ("AFTER", "SCHEDULE") if key in props]
    if written and stamp is not None and (stamp.active or "AFTER" not in props):
        assert planning is not None
        assert planning.scheduled is not None
        written.append(("SCHEDULED:", planning.scheduled.text))
    if len(written) < 2:
        return
    (name, won), *others = written
    lost = " and ".join(f"{key} {shown(value)}" for key, value in others)
    message = f"{name} {shown(won)} overrides {lost}"
    at = place_of(headline, name.strip(":"))
    yield warning(at, "schedule-both", message, "keep the one you mean")


STAMPS: Final[tuple[Check, ...]] = (planning_findings, _never_fires, _both)


_PLANNING: Final = re.compile(r"[ \t]*+(?:SCHEDULED|DEADLINE|CLOSED):")
_KEYWORD: Final = re.compile(r"(SCHEDULED|DEADLINE|CLOSED):[ \t]*+(.+)", re.DOTALL)
_OPEN_STAMP: Final = re.compile(
    r"([<\[]?)(\d{4}-\d\d-\d\d(?:[ \t]+(?:[^\W\d]+|[0-2]?\d:\d\d(?:-[0-2]?\d:\d\d)?|[.+-]\S+))*)"
)
_PLANNING_ANY: Final = re.compile(
    r"^[ \t]*+((?i:scheduled|deadline|closed)):[ \t]*+[<\[]", re.MULTILINE
)
_DRAWER: Final = re.compile(r"^[ \t]*+:(?i:properties):[ \t]*+\r?$", re.MULTILINE)
_NEAR_KEYWORD: Final = re.compile(r"^[ \t]*+([A-Z]{5,10}):[ \t]", re.MULTILINE)
_STARS: Final = re.compile(r"(\*+)[^*\s]")
# A line of stars that is not a headline, although it is followed by planning or a drawer.
_UNSPACED: Final = re.compile(
    rf"^{_STARS.pattern}[^\n]*\n(?:{_PLANNING.pattern}|[ \t]*+:(?i:properties):[ \t]*+\r?$)",
    re.MULTILINE,
)
_BLOCK: Final = re.compile(r"^[ \t]*+#\+(?i:begin_src)\b", re.MULTILINE)
_SPACE: Final = "a headline needs a space after {}"
_KEYWORDS: Final = ("scheduled", "deadline", "closed")
_NEAR: Final = ("workflow", "component", "agent")


def _planning_line(headline: Headline) -> Iterator[SectionFinding]:
    text, below = headline.text, headline.below
    if headline.planning is None and _PLANNING.match(text, below):
        yield _void_planning(text, below)
        return
    start = headline.planning.end if headline.planning else below
    for found in _PLANNING_ANY.finditer(bare(text, start), start):
        keyword = found[1]
        if headline.planning is None and found.start() == below:
            message = f"{keyword}: is ignored"
            fix = f"write it in capitals: {keyword.upper()}:"
            yield error(found.start(1), "planning-case", message, fix)
            return
        if keyword.isupper():
            message = (
                f"{keyword}: is ignored here; SCHEDULED:, DEADLINE: and CLOSED: must be on one"
                " line, directly below the headline"
            )
            fix = "move it to the line directly below the headline"
            if headline.planning is not None:
                fix = "move it to the end of the line directly below the headline"
            yield error(found.start(1), "planning-misplaced", message, fix)
            return
    for found in _NEAR_KEYWORD.finditer(bare(text, start), start) if is_fired(headline) else ():
        word = found[1].lower()
        if meant := next((each for each in _KEYWORDS if _is_near(word, each)), None):
            fix = f"did you mean {meant.upper()}: <…> directly below the headline"
            fix += ", or :SCHEDULE: in the drawer?" if word == "schedule" else "?"
            yield warning(found.start(1), "planning-typo", f"{found[1]}: is ignored", fix)


def _planned_twice(headline: Headline) -> Iterator[SectionFinding]:
    line = headline.planning
    if line is None:
        return
    first: dict[str, int] = {}
    again: dict[str, int] = {}
    for keyword, stamp in planning_items(headline.text, line.start, line.end):
        known = again if keyword in first else first
        known.setdefault(keyword, stamp.start)
    for keyword in again:
        message = f"{keyword}: occurs more than once on this line; the last one is used"
        fix = "keep one, or write a second headline"
        yield warning(first[keyword], "planning-twice", message, fix)


def _void_planning(text: str, below: int) -> SectionFinding:
    at = planning_void_at(text, below)
    rest = line_at(text, at).rstrip()
    fix = "keep only SCHEDULED:, DEADLINE: and CLOSED: on it, each with one timestamp"
    if keyword := _KEYWORD.fullmatch(rest):
        at, rest = at + keyword.start(2), keyword[2]
        if stamp := _OPEN_STAMP.fullmatch(rest):
            written = f"[{stamp[2]}]" if stamp[1] == "[" else f"<{stamp[2]}>"
            fix = f"write {keyword[1]}: {written}"
    message = f"{shown(rest.strip() or text[at])} makes this planning line invalid"
    return error(at, "planning-void", message, fix)


def unspaced(preamble: str) -> Iterator[SectionFinding]:
    for found in _UNSPACED.finditer(bare(preamble)):
        message = "this is not a headline, so the lines below it are ignored"
        yield error(found.start(), "headline-space", message, _SPACE.format(found[1]))


def _property_twice(headline: Headline) -> Iterator[SectionFinding]:
    if headline.drawer is None or not is_fired(headline):
        return
    seen: set[str] = set()
    for line in properties(headline.text, headline.drawer):
        if line.key in seen and line.value and not line.adds:
            message = f":{line.key}: occurs more than once in this drawer; the last one is used"
            fix = "separate several expressions in one line with ;"
            fix = (
                fix if line.key == "SCHEDULE" else f"keep one, or write :{line.key}+: to add to it"
            )
            yield warning(line.at.start, "property-twice", message, fix)
        seen.update([line.key] if line.value and not line.adds else ())


def _property_drawer(headline: Headline) -> Iterator[SectionFinding]:
    text = headline.text
    start = headline.planning.end if headline.planning else headline.below
    start = headline.drawer.end if headline.drawer else start
    found = _DRAWER.search(bare(text, start), start)
    if found is None:
        return
    opening = text.index(":", found.start())
    if headline.drawer is not None:
        message = "this drawer is ignored: its headline has another one above"
        fix = "keep one drawer, or write a headline above this one"
        if stars := _STARS.match(text, text.rfind("\n", 0, max(found.start() - 1, 0)) + 1):
            fix = _SPACE.format(stars[1])
        yield error(opening, "drawer-twice", message, fix)
        return
    if found.start() != start:
        blocker = line_at(text, start)
        what = shown(blocker.strip()) if blocker.strip() else "the blank line"
        message = f"this drawer is ignored: {what} is between it and its headline"
        fix = "put the drawer directly below the headline or its planning line"
        yield error(opening, "drawer-misplaced", message, fix)
        return
    at = drawer_void_at(text, start)
    if at is None:
        return
    if not has_end(text, at):
        message = "this drawer has no :END:, so its properties are ignored"
        yield error(opening, "drawer-void", message, "add :END: after the properties")
        return
    line = line_at(text, at)
    at += len(line) - len(line.lstrip())
    what = f"line {shown(line.strip())}" if line.strip() else "a blank line"
    message = f"{what} makes the drawer invalid: its properties are ignored"
    yield error(at, "drawer-void", message, "write it as :KEY: value, or remove it")


def _tags(headline: Headline) -> Iterator[SectionFinding]:
    line = line_at(headline.text, 0).rstrip()
    for meant in _NEAR:  # one finding for each, however many tags are similar
        tag = next((tag for tag in headline.tags if _is_near(tag, meant)), None)
        if tag is not None:
            at = max(line.rfind(f":{tag}:") + 1, 0)
            message = f"tag {tag!r} has no effect"
            yield warning(at, "tag-typo", message, f"did you mean :{meant}:?")
    last = line.rpartition(" ")[2].rpartition("\t")[2]
    if not headline.tags and len(last) > 2 and last[0] == last[-1] == ":":
        message = f"{shown(last)} is removed from the title but is not a valid tag"
        fix = "use only letters, digits, _, @, # and % in a tag"
        yield warning(len(line) - len(last), "tag-void", message, fix)


def _is_near(word: str, known: str) -> bool:
    if word == known or abs(len(word) - len(known)) > 1:
        return False
    word = word.lower()
    start = 0
    while start < min(len(word), len(known)) and word[start] == known[start]:
        start += 1
    rest, meant = word[start:], known[start:]
    is_swapped = len(rest) > 1 and rest[1::-1] + rest[2:] == meant
    return rest == meant or is_swapped or meant[1:] in {rest, rest[1:]} or rest[1:] == meant


def _open_block(headline: Headline) -> Iterator[SectionFinding]:
    if "component" not in headline.tags:
        return
    found = _BLOCK.search(bare(headline.text, headline.body), headline.body)
    if found is not None:
        at = headline.text.index("#", found.start())
        message = "this source block is not closed, so it is ignored"
        fix = "add a line #+end_src (#+begin_NAME needs #+end_NAME); escape a leading * as ,*"
        yield error(at, "block-open", message, fix)


def unread(headline: Headline) -> SectionFinding | None:
    text, below = headline.text, headline.below
    if text.find(":", below) < 0:
        return None
    is_planned = headline.planning or not _PLANNING_ANY.match(text, below)
    if is_planned and (headline.drawer or not _DRAWER.search(text)):
        return None  # the usual case
    for each in (_planning_line, _property_drawer):
        for found in each(headline):
            if found.code in _UNREAD:
                return found
    return None


_UNREAD: Final = frozenset({"planning-void", "planning-case", "drawer-void", "drawer-misplaced"})

LAYOUT: Final[tuple[Check, ...]] = (
    _planning_line, _planned_twice, _property_drawer, _property_twice, _tags, _open_block,
)  # fmt: skip

CHECKS: tuple[Check, ...] = (*LAYOUT, *STAMPS)
