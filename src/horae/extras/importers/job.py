"""Jobs and rules of other schedulers, and their headlines."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.core.entry import Entry, RepeaterRule
from horae.core.project import project
from horae.core.text import with_zone, words
from horae.errors import HoraeError
from horae.org.document import read
from horae.sources.plans.arming import entries_of, rule_text
from horae.timing import cron_fields
from horae.timing.cron_fields import field_text

if TYPE_CHECKING:
    from horae.org.plan import Headline, Plan

# Limits for one text, so that a megabyte takes about a second, whatever it contains.
MOST: Final = 250  # jobs
MOST_REFUSALS: Final = 200
LONGEST_LINE: Final = 10_000  # characters
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # not allowed in a line
_LONGEST_WORD: Final = 60  # of a remark
_LONGEST_REMARK: Final = 400
_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")

FIRES: Final = 3  # times per job that are shown
FAR: Final = datetime(9990, 1, 1, tzinfo=UTC)
_BLANKS: Final = re.compile(r"\s+")
_NAMED: Final = re.compile(r"[^\W_]+")
_LONGEST_ID: Final = 24
_LONGEST_TITLE: Final = 200
_STARS: Final = re.compile(r"^(,*)(\*+ |#\+)", re.MULTILINE)
_NUMBER: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
CRON_NAMES: Final = tuple(name[:3] for name in cron_fields.WEEKDAYS)
SUNDAY_FIRST: Final = {name.lower(): number for number, name in enumerate(CRON_NAMES)}
MONTHS: Final = {name[:3].lower(): number for number, name in enumerate(cron_fields.MONTHS, 1)}
YEARS: Final = (1970, 2199)


class Remark(NamedTuple):
    line: int
    column: int
    what: str
    remedy: str
    is_taken: bool = False  # the job is imported without it

    def __str__(self) -> str:
        word = "note" if self.is_taken else "not imported"
        return f"{self.line}:{self.column}: {word}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class ForeignJob:
    line: int
    title: str
    zone: str
    rules: tuple[str, ...] = ()  # in our cron
    command: str = ""
    stamp: str = ""  # an org timestamp, instead of rules
    props: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # lines of the body, below the rule in words
    script: str = ""  # the block of a component, instead of a command
    name: str = ""  # its name there, for its :ID:; else its title

    @property
    def schedule(self) -> str:
        return "; ".join(self.rules)


@dataclass(slots=True)
class Reading:
    """The jobs of a text, and remarks about the rest. A reader adds to it line by line."""

    jobs: list[ForeignJob] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    is_full: bool = False  # the rest was too long, and is left out

    def refuse(self, line: int, column: int, what: str, remedy: str) -> None:
        self._add(Remark(line, column, shortened(what), shortened(remedy)))

    def note(self, line: int, column: int, what: str, remedy: str) -> None:
        self._add(Remark(line, column, shortened(what), shortened(remedy), is_taken=True))

    def has_room(self, line: int, column: int = 1) -> bool:
        """Return whether there is room for another job; if not, add a remark, once."""
        if len(self.jobs) >= MOST:
            self._end(line, column, f"there are more than {MOST:,} jobs")
        return not self.is_full

    def _add(self, remark: Remark) -> None:
        alike = sum(each.is_taken is remark.is_taken for each in self.remarks)
        if alike < (2 * MOST if remark.is_taken else MOST_REFUSALS):
            self.remarks.append(remark)
        else:
            self._end(remark.line, 1, f"there are more than {alike:,} remarks of this kind")

    def _end(self, line: int, column: int, why: str) -> None:
        if not self.is_full:
            what = f"{why}; this line and all below are skipped"
            self.remarks.append(Remark(line, column, what, "split the file"))
        self.is_full = True


def as_user(user: str) -> str:
    sudo = f"prefix the command with `sudo -nu {user}`"
    return f"run it with an engine of that user, or, outside a service of `horae service`, {sudo}"


def shortened(text: str) -> str:
    """Return a text with its long words shortened.

    >>> shortened(f"minute '{'9' * 4000}' cannot be read")
    "minute '99999999999999999999999999999999999999…9999999' cannot be read"
    """
    plain = _WORD.sub(lambda found: f"{found[0][:39]}…{found[0][-8:]}", text)
    return plain if len(plain) <= _LONGEST_REMARK else f"{plain[:_LONGEST_REMARK]}…"


class ImportedJob(NamedTuple):
    job: ForeignJob
    text: str
    entry: Entry | None
    fires: tuple[datetime, ...] = ()
    reason: str = ""

    @property
    def is_taken(self) -> bool:
        return self.entry is not None and bool(self.fires)


def import_job(
    job: ForeignJob,
    *,
    now: datetime,
    taken: Collection[str] = (),
    ids: Collection[str] = (),
) -> ImportedJob:
    """Return a job as a headline with a new title and :ID:."""
    name = short_id(job.name) or short_id(job.title) or f"job-{job.line}"
    job = replace(job, title=_free(_plain(job), taken, "{} ({})"), name=_free(name, ids, "{}-{}"))
    # The rule alone is read first, for its words; the command may be long.
    rule = _entry(headline_text(replace(job, command="true", script="", notes=()), said=""))
    said = in_words(rule) if isinstance(rule, Entry) else ""
    text = headline_text(job, said=said)
    entry = _entry(text) if isinstance(rule, Entry) else rule
    if not isinstance(entry, Entry):
        return ImportedJob(job, text, None, reason=entry)
    fires = next_times(entry, now)
    return ImportedJob(job, text, entry, fires, "" if fires else "the job never runs")


def next_times(entry: Entry, now: datetime, most: int = FIRES) -> tuple[datetime, ...]:
    return tuple(each.at for each in islice(project(entry, now, FAR), most))


def in_words(entry: Entry) -> str:
    said = words(entry.rule, zone_name=entry.zone)
    if isinstance(entry.rule, RepeaterRule):
        said = said.partition("; ")[0]  # :CATCHUP: has the rest, about missed times
    said = with_zone(said, entry.zone)
    return f"{said[0].upper()}{said[1:]}."


def headline_text(job: ForeignJob, *, said: str) -> str:
    tag = " :workflow:" if job.script else ""
    lines = [f"* {job.title}{tag}"]
    if job.stamp:
        lines.append(f"SCHEDULED: {job.stamp}")
    props = {"ID": job.name, "SCHEDULE": job.schedule, "TZ": job.zone, "COMMAND": job.command}
    props |= dict(job.props)
    width = max(len(key) for key, value in props.items() if value) + 2
    drawer = [f"{f':{key}:':<{width}} {value}" for key, value in props.items() if value]
    lines += [":PROPERTIES:", *drawer, ":END:"]
    if said:
        lines.append(said)
    lines += [_STARS.sub(r",\1\2", note) for note in job.notes]
    if job.script:
        block = _STARS.sub(r",\1\2", job.script.rstrip("\n"))
        lines += ["** Run :component:", "#+begin_src bash :dir .", block, "#+end_src"]
    return "\n".join(lines) + "\n"


Meaning: TypeAlias = tuple[str | None, str, str | None]


def meanings(plan: Plan) -> dict[Meaning, Headline]:
    found: dict[Meaning, Headline] = {}
    for each in plan.headlines:
        if rule_text(each):
            found.setdefault(_meaning(each), each)
    return found


def clone_of(text: str, known: Mapping[Meaning, Headline]) -> Headline | None:
    return known.get(_meaning(read(text).headlines[0]))


def _meaning(headline: Headline) -> Meaning:
    return headline.props.get("COMMAND"), rule_text(headline), headline.props.get("TZ")


def _entry(text: str) -> Entry | str:
    try:
        found = list(entries_of(read(text), file="-", zone_name="UTC"))
    except HoraeError as error:
        return str(error)
    if len(found) != 1:
        return "the job cannot be written as one headline"
    entry = found[0]
    return entry if isinstance(entry, Entry) else entry.reason


def _plain(job: ForeignJob) -> str:
    title = _BLANKS.sub(" ", job.title).strip()[:_LONGEST_TITLE].strip()
    headline = read(f"* {title}\n").headlines
    is_plain = (
        len(headline) == 1
        and headline[0].title == title
        and headline[0].state is None
        and not headline[0].tags
        and not title.startswith(("COMMENT", "TODO", "DONE", "[#"))
        and title.isprintable()
    )
    return title if is_plain and title else f"Job of line {job.line}"


def short_id(title: str) -> str:
    """Return an :ID: from the first words of a title; "" if there are none.

    >>> short_id("Back up /srv to the other machine"), short_id("cd /srv/shop && ./poll")
    ('back-up-srv-to-the-other', 'cd-srv-shop-poll')
    >>> short_id("42"), short_id("all")  # a number is an entry's, and :AFTER: knows the other
    ('job-42', 'job-all')
    """
    found = ""
    for word in _NAMED.findall(title.lower()):
        longer = f"{found}-{word}" if found else word[:_LONGEST_ID]
        if len(longer) > _LONGEST_ID:
            break
        found = longer
    return f"job-{found}" if found == "all" or found.isdecimal() else found


def _free(name: str, taken: Collection[str], form: str) -> str:
    numbered = (form.format(name, number) for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


class UnfitError(Exception):
    """A part of a foreign rule that cannot be imported, why, and what to do."""

    def __init__(self, what: str, remedy: str = "", *, offset: int = 0) -> None:
        super().__init__(what)
        self.what, self.remedy, self.offset = what, remedy, offset


class Dialect(NamedTuple):
    """The syntax of a field: its name and bounds, its names, and the word for a range."""

    word: str
    low: int
    high: int
    names: Mapping[str, int] = {}
    dash: str = "-"
    has_star_step: bool = True  # */5
    has_open_step: bool = True  # 5/10, which continues to the end


def numbers(text: str, dialect: Dialect, offset: int = 0) -> frozenset[int]:
    """Return the numbers of a field that begins at an offset.

    >>> sorted(numbers("1-5/2,9", Dialect("hour", 0, 23)))
    [1, 3, 5, 9]
    """
    found: set[int] = set()
    for item in text.split(","):
        try:
            found |= _item(item, dialect)
        except UnfitError as error:
            error.offset += offset
            raise
        offset += len(item) + 1
    return frozenset(found)


def _item(item: str, dialect: Dialect) -> set[int]:
    body, slash, text = item.partition("/")
    said = f"{dialect.word} {item!r}"
    if slash and (not _NUMBER.fullmatch(text) or int(text) == 0):
        raise UnfitError(f"{said} has no step after /", "write a number of at least 1")
    step = int(text) if slash else 1
    if body == "*":
        if slash and not dialect.has_star_step:
            raise UnfitError(f"{said} has a step after *", f"write {dialect.low}/{text}")
        return set(range(dialect.low, dialect.high + 1, step))
    first, dash, last = body.partition(dialect.dash)
    low = _number(first, item, dialect)
    high = _number(last, item, dialect) if dash else low
    if slash and not dash:
        if not dialect.has_open_step:
            what = f"{said} has a step without a range, which cron implementations read differently"
            remedy = f"write {low}{dialect.dash}{dialect.high}/{step}, or {low} alone"
            raise UnfitError(what, remedy)
        high = dialect.high
        if low + step > high and not dialect.has_star_step:
            raise UnfitError(f"{said} has a step that goes past {high}", f"write {low} alone")
    if high < low:
        raise UnfitError(f"{said} runs backwards", "write two ranges separated by a comma")
    return set(range(low, high + 1, step))


def _number(text: str, item: str, dialect: Dialect) -> int:
    if (value := dialect.names.get(text.lower())) is not None:
        return value
    if not _NUMBER.fullmatch(text):
        example = next(iter(dialect.names), None)
        names = f", or a name such as {example}" if example else ""
        remedy = f"write numbers in {dialect.low}-{dialect.high}{names}"
        raise UnfitError(f"{dialect.word} {item!r} cannot be read", remedy)
    if not dialect.low <= int(text) <= dialect.high:
        what = f"{dialect.word} {text} is outside {dialect.low}-{dialect.high}"
        raise UnfitError(what, "correct the number")
    return int(text)


def cron_of(
    times: Sequence[frozenset[int]],
    days: tuple[str, str],
    months: frozenset[int],
    years: frozenset[int] | None,
) -> str:
    """Return our cron for seconds, minutes and hours on the days of two fields.

    >>> cron_of([frozenset({0}), frozenset({30}), frozenset({9})], ("L", "*"), {12}, None)
    '30 9 L 12 *'
    """
    second, minute, hour = (
        field_text(each, 0, high) for each, high in zip(times, (59, 59, 23), strict=True)
    )
    fields = [minute, hour, days[0], field_text(months, 1, 12), days[1]]
    if years is not None:
        return " ".join([second, *fields, field_text(years, *YEARS)])
    return " ".join(fields if second == "0" else [second, *fields])


_EVERY_DAY: Final = frozenset(range(1, 32))
_WEEKS: Final = tuple(frozenset(range(7 * n + 1, min(7 * n + 8, 32))) for n in range(5))
_LAST_WEEK: Final = frozenset(range(1, 8))


def day_fields(
    days: frozenset[int], weekdays: frozenset[int], *, from_end: bool
) -> tuple[str, str]:
    """Return the day fields of a rule whose date and weekday (0: Sunday) must both match.

    >>> day_fields(frozenset(range(8, 15)), frozenset({5}), from_end=False)
    ('*', 'FRI#2')
    """
    is_any_weekday = len(weekdays) == 7
    if is_any_weekday and from_end:
        return ",".join(f"L-{n - 1}" if n > 1 else "L" for n in sorted(days)), "*"
    if is_any_weekday:
        return field_text(days, 1, 31), "*"
    if days == _EVERY_DAY and not from_end:
        return "*", weekday_text(weekdays)
    ordered = sorted(weekdays)
    if from_end and days == _LAST_WEEK:
        return "*", ",".join(f"{CRON_NAMES[day]}L" for day in ordered)
    whole = [n for n, week in enumerate(_WEEKS, 1) if week <= days]
    if not from_end and frozenset().union(*(_WEEKS[n - 1] for n in whole)) == days:
        return "*", ",".join(f"{CRON_NAMES[day]}#{n}" for day in ordered for n in whole)
    raise UnfitError(
        "a weekday and a day of the month must both match",
        "cron runs if either matches; use a form such as FRI#2 (second Friday), or test one of "
        "them in the command",
    )


def weekday_text(
    weekdays: frozenset[int], names: Sequence[str] = CRON_NAMES, dash: str = "-"
) -> str:
    """Return the weekday field for days from 0, which is Sunday.

    >>> weekday_text(frozenset({1, 2, 3, 4, 5})), weekday_text(frozenset({0, 6}))
    ('MON-FRI', 'SAT,SUN')
    """
    ordered = sorted(day or 7 for day in weekdays)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{names[ordered[0]]}{dash}{names[ordered[-1] % 7]}"
    return ",".join(names[day % 7] for day in ordered)
