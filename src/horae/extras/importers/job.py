"""Jobs of other schedulers, their headlines, and how the times of the two compare."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.core.entry import Entry, RepeaterRule
from horae.core.project import project
from horae.core.text import with_zone, words
from horae.errors import HoraeError
from horae.extras.importers.rule import FAR, ForeignRule, times_of
from horae.org.document import read
from horae.sources.plans.arming import entries_of, rule_text
from horae.timing.zone import changes, zone

if TYPE_CHECKING:
    from horae.org.plan import Headline, Plan

# What bounds the work on one text, so that a megabyte takes about a second, whatever it holds.
MOST: Final = 250  # jobs
MOST_ZONES: Final = 8  # each of which has clock changes of its own to be found
MOST_REFUSALS: Final = 200
_MOST_NOTES: Final = 2 * MOST
LONGEST_LINE: Final = 10_000  # characters
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # no line of a text has these
_LONGEST_WORD: Final = 60  # of a remark; what is longer was never meant to be read
_LONGEST_REMARK: Final = 400
_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")

FIRES: Final = 50
_YEAR: Final = timedelta(days=366)
_AROUND: Final = timedelta(hours=4)  # a change and what it moves
_BLANKS: Final = re.compile(r"\s+")
_NAMED: Final = re.compile(r"[^\W_]+")
_LONGEST_ID: Final = 24
_LONGEST_TITLE: Final = 200
_STARS: Final = re.compile(r"^(,*)(\*+ |#\+)", re.MULTILINE)


class Remark(NamedTuple):
    """Something about a place of the text that was not taken, or that will be otherwise."""

    line: int
    column: int
    what: str
    remedy: str
    is_taken: bool = False  # the job is there, but not all about it

    def __str__(self) -> str:
        word = "note" if self.is_taken else "not imported"
        return f"{self.line}:{self.column}: {word}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """One thing that another scheduler runs, as a headline of ours would say it."""

    line: int
    title: str
    zone: str
    rules: tuple[ForeignRule, ...] = ()
    command: str = ""
    stamp: str = ""  # an org timestamp, in place of rules
    props: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # lines of the body, below the rule in words
    script: str = ""  # a component's block, where it is no command
    name: str = ""  # what it goes by there, for its :ID:; else its title
    is_alert: bool = False  # it has no time, and runs when the job before it has failed

    @property
    def schedule(self) -> str:
        return "; ".join(rule.cron for rule in self.rules)


@dataclass(slots=True)
class Reading:
    """What a text holds: jobs, and remarks about the rest. A reader fills it line by line."""

    jobs: list[ForeignJob] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    is_full: bool = False  # there is so much of it that the rest is left

    def refuse(self, line: int, column: int, what: str, remedy: str) -> None:
        if sum(not each.is_taken for each in self.remarks) < MOST_REFUSALS:
            self.remarks.append(Remark(line, column, shortened(what), shortened(remedy)))
        else:
            self._end(line, 1, f"more than {MOST_REFUSALS:,} items cannot be imported")

    def note(self, line: int, column: int, what: str, remedy: str) -> None:
        if len(self.remarks) < MOST_REFUSALS + _MOST_NOTES:
            self.remarks.append(Remark(line, column, shortened(what), shortened(remedy), True))
        else:
            self._end(line, 1, f"there are more than {_MOST_NOTES:,} notes")

    def has_room(self, line: int, column: int = 1) -> bool:
        """Tell whether one more job is taken; if not, that is said once."""
        if len(self.jobs) >= MOST:
            self._end(line, column, f"there are more than {MOST:,} jobs")
        return not self.is_full

    def _end(self, line: int, column: int, why: str) -> None:
        if not self.is_full:
            what = f"{why}; this line and all below are skipped"
            self.remarks.append(Remark(line, column, what, "split the file"))
        self.is_full = True


def as_user(user: str) -> str:
    """Return what to do with a job that another scheduler starts as another user."""
    sudo = f"prefix the command with `sudo -nu {user}`"
    return f"run it with an engine of that user, or, outside a service of `horae service`, {sudo}"


def shortened(text: str) -> str:
    """Return a text in which no word goes on and on.

    >>> shortened(f"minute '{'9' * 4000}' cannot be read")
    "minute '99999999999999999999999999999999999999…9999999' cannot be read"
    """
    plain = _WORD.sub(lambda found: f"{found[0][:39]}…{found[0][-8:]}", text)
    return plain if len(plain) <= _LONGEST_REMARK else f"{plain[:_LONGEST_REMARK]}…"


class OneSidedTime(NamedTuple):
    at: datetime
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """How the times of a headline compare with those of the scheduler that it is from."""

    asked: int  # how many times of the other were compared
    equal: int
    differing: tuple[datetime, ...] = ()  # that only one of the two has
    seams: tuple[OneSidedTime, ...] = ()  # that differ because a clock changes, within a year
    moments: tuple[datetime, ...] = ()

    @property
    def holds(self) -> bool:
        return self.asked > 0 and not self.differing


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A job, the headline that stands for it, and how their times compare; or why it has none."""

    job: ForeignJob
    text: str
    entry: Entry | None
    proof: Proof
    reason: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether the headline may be written; an alert has no times."""
        return self.entry is not None and (self.job.is_alert or self.proof.asked > 0)


Proofs: TypeAlias = dict[str, dict[object, Proof]]  # by zone and rule


def import_job(
    job: ForeignJob,
    *,
    now: datetime,
    taken: Collection[str] = (),
    ids: Collection[str] = (),
    after: str = "",
    proofs: Proofs | None = None,
) -> ImportedJob:
    """Return a job as a headline whose title and :ID: no other has, with its proof.

    *after* is what an alert follows; *proofs* keeps what was proven of the same file.
    """
    name = short_id(job.name) or short_id(job.title) or f"job-{job.line}"
    job = replace(job, title=_free(_plain(job), taken, "{} ({})"), name=_free(name, ids, "{}-{}"))
    if job.is_alert:
        job = replace(job, props=(("AFTER", f"failed of {after}"), *job.props))
    nothing = Proof(0, 0)
    proofs = {} if proofs is None else proofs
    if not job.is_alert and job.zone not in proofs and len(proofs) >= MOST_ZONES:
        reason = f"there are more than {MOST_ZONES} time zones; split the file"
        return ImportedJob(job, "", None, nothing, reason)
    # The rule alone is read first: to say it in words, and before a command that may be long.
    rule = _entry(headline_text(replace(job, command="true", script="", notes=()), said=""))
    said = in_words(rule) if isinstance(rule, Entry) and not job.is_alert else ""
    text = headline_text(job, said=said)
    entry = _entry(text) if isinstance(rule, Entry) else rule
    if not isinstance(entry, Entry):
        return ImportedJob(job, text, None, nothing, entry)
    if job.is_alert:
        return ImportedJob(job, text, entry, nothing)
    known = proofs.setdefault(job.zone, {})
    key = (job.rules, job.stamp, dict(job.props).get("UNTIL"))
    proof = known[key] = known.get(key) or prove(entry, job.rules, now=now)
    return ImportedJob(job, text, entry, proof, "" if proof.asked else "the job never runs")


def in_words(entry: Entry) -> str:
    said = words(entry.rule, zone_name=entry.zone)
    if isinstance(entry.rule, RepeaterRule):
        said = said.partition("; ")[0]  # what becomes of missed times, :CATCHUP: says
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


def prove(entry: Entry, rules: Sequence[ForeignRule], *, now: datetime) -> Proof:
    """Compare the next times of an entry with those of rules of another scheduler.

    Without rules the entry has a timestamp, which means the same to both.
    """
    until = entry.policy.until or FAR

    def both(start: datetime, end: datetime) -> tuple[list[datetime], list[datetime]]:
        ours = [each.at for each in islice(project(entry, start, end), FIRES)]
        return ours, times_of(rules, entry.zone, start, FIRES, min(end, until)) if rules else ours

    ours, theirs = both(now, FAR)
    odd = _odd(ours, theirs)
    place = zone(entry.zone)
    near = [each.at for each in changes(place, now - _AROUND, now + _YEAR)]
    near += [each.at for at in odd for each in changes(place, at - _AROUND, at + _AROUND)]
    touched = {at for at in odd if any(abs(at - each) <= _AROUND for each in near)}
    # A clock change that the next times do not reach is looked at for itself.
    seams = {at: odd[at] for at in touched}
    for each in near:
        if each > now:
            seams |= _odd(*both(each - _AROUND, each + _AROUND))
    equal, differing = len(set(theirs) & set(ours)), tuple(sorted(odd.keys() - touched))
    found = tuple(OneSidedTime(at, is_ours=seams[at]) for at in sorted(seams))
    return Proof(len(theirs), equal, differing, found, tuple(theirs))


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


def _odd(ours: Sequence[datetime], theirs: Sequence[datetime]) -> dict[datetime, bool]:
    end = min(each[-1] if len(each) == FIRES else FAR for each in (ours, theirs))
    return {at: at in ours for at in set(ours) ^ set(theirs) if at <= end}


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
    """Return a short name for an :ID:, made of the first words of a title; "" if there are none.

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
