"""Findings that need the meaning of a schedule; `org.check` has those of the text.

Any property may be used; one that looks misspelled, or is of another scheduler, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice, pairwise
from shlex import quote
from typing import Final, TypeAlias

from horae.core.budget import Unit
from horae.core.command import CommandError, call_of, shell_syntax
from horae.core.decide import AfterError
from horae.core.entry import PROPERTIES, Entry, PolicyError, Rule, policy_of
from horae.core.project import project, seams
from horae.core.source import is_entry
from horae.core.text import anchor_words, wall_text, written_rule
from horae.errors import ScheduleError
from horae.org.check import SectionFinding, check_plans as kernel_check, place_of, shown
from horae.org.document import keywords
from horae.org.plan import Diagnostic, Headline, Plan, SectionPlace, Severity
from horae.sources.plans.arming import once_wall, rule_of, scan_plan, twins
from horae.timing.cron import Cron, CronError, is_phrase
from horae.timing.duration import format_duration
from horae.timing.phrases import PhraseError, compile_phrase
from horae.timing.zone import ZoneError, local, zone

FLOOR: Final = timedelta(minutes=1)
_YEAR: Final = timedelta(days=366)
_SAMPLE: Final = 20
_SAMPLE_FROM: Final = datetime.fromisoformat("2024-01-01T00:00:00+00:00")
# Without one of these an entry runs at another time, or never.
WHEN: Final = ("SCHEDULE", "AFTER", "TZ", *(each.key for each in PROPERTIES if each.decides_times))
WHAT: Final = ("COMMAND", "POST")
KNOWN: Final = tuple(
    dict.fromkeys((*WHEN, *WHAT, "ENV", "AGENT", "ID", *(each.key for each in PROPERTIES)))
)
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "SCHEDULE": ("CRON", "CRONTAB", "CRON_SCHEDULE", "ONCALENDAR", "SCHEDULED"),
    "COMMAND": ("CMD", "EXEC", "EXECSTART", "SCRIPT", "PROGRAM"),
    "POST": ("WEBHOOK",),
    "TZ": ("TIMEZONE", "TIME_ZONE", "ZONE", "CRON_TZ"),
    "ENV": ("ENVIRONMENT", "ENV_VARS"),
    **{each.key: each.other_names for each in PROPERTIES},
}
_WORDS: Final = frozenset({"FORM"})  # similar to a known one, and yet allowed
_MEANT: Final = {
    name.replace("_", ""): key for key, names in _OTHER_NAMES.items() for name in names
}
# Replacements for words of other schedulers.
_INSTEAD: Final = {
    "EXDATE EXDATES HOLIDAYS HOLIDAY BLACKOUT EXCEPT": "name the days in :SCHEDULE:, or pause the"
    " entry with `horae pause --until`",
    "RRULE RDATE DTSTART EVERY INTERVAL FREQUENCY": "write a cron expression in :SCHEDULE:, or"
    " SCHEDULED: with a repeater",
    "MAILTO NOTIFY ALERT ONFAILURE ONSUCCESS ONERROR": "add a headline with `:AFTER: failed` and"
    " :COMMAND: or :POST:",
    "DEPENDS DEPENDSON DEPENDENCIES RUNAFTER": "make both components of one :workflow:, so that"
    " one takes the other's output",
    "USER RUNAS RUNASUSER": "commands run as the engine's user; use sudo -u NAME in :COMMAND:",
    "APPROVE APPROVAL APPROVERS": "only runs of triggers can wait for approval; use `horae trigger"
    ' add` with --tools \'{"mode": "require_approval"}\'',
    "CWD WORKDIR WORKINGDIR WORKINGDIRECTORY": "commands run in the plan's directory; use"
    " sh -c 'cd DIR && …' in :COMMAND:",
    "STDOUT STDERR LOGFILE": "`horae logs` shows the output; to redirect it, use sh -c '… > FILE'",
    "ENABLED DISABLED PAUSED": "write COMMENT before the title, or run `horae pause`",
    "SHELL": "use sh -c '…' in :COMMAND:",
    "NICE": "use nice in :COMMAND:",
    "DEADLINE": "write DEADLINE: <…> on the line under the headline",
}
_JOINED: Final = {key.replace("-", ""): key for key in KNOWN}
_ADVICE: Final = {word: advice for words, advice in _INSTEAD.items() for word in words.split()}


@dataclass(frozen=True, slots=True)
class CheckClock:
    zone: str = "UTC"
    now: datetime | None = None  # if None, no clock changes are found
    floor: timedelta = FLOOR


def check_plans(
    plans: Iterable[tuple[str, Plan]], clock: CheckClock, *, extra: Sequence[WorkflowCheck] = ()
) -> list[Diagnostic]:
    known = list(plans)
    found = kernel_check(known)
    for name, plan in known:
        found += _zone_keywords(name, plan)
        for headline, place in zip(plan.headlines, plan.places(), strict=True):
            if is_near_entry(headline):
                workflow = CheckedWorkflow(name, headline, place, clock)
                found += _check_properties(workflow)
                found += _check_workflow(workflow, extra) if is_entry(headline) else ()
            elif "BUDGET" in headline.props and "agent" not in headline.tags:
                found += _check_policies(CheckedWorkflow(name, headline, place, clock), "BUDGET")
            elif "agent" in headline.tags:
                found += _agent_schedule(CheckedWorkflow(name, headline, place, clock))
        found += _same_names(name, plan, clock.zone)
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


def _zone_keywords(name: str, plan: Plan) -> Iterator[Diagnostic]:
    for each in keywords(plan.preamble):
        if _MEANT.get(_joined(each.key.upper()), each.key.upper()) == "TZ":
            message = f"#+{each.key}: is ignored: a file has no time zone of its own"
            fix = "set `zone` in horae.toml, or write :TZ: in the drawer of each entry"
            at = SectionFinding(each.span.start, "keyword-zone", Severity.WARNING, message, fix)
            yield at.located(name, SectionPlace(0, 1), plan.preamble)


def _agent_schedule(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    headline = workflow.headline
    if "SCHEDULE" in headline.props or (headline.scheduled and headline.scheduled.active):
        message = "this schedule has nothing to run: an agent definition is not an entry"
        fix = "start the agent by a workflow, a trigger, the crew or keeper.def"
        at, code = workflow.when_at(), "schedule-idle"
        yield workflow.found(at, code, Severity.WARNING, message, fix=fix)


def phrase_notes(
    name: str, plan: Plan, clock: CheckClock, *, known: Callable[[Entry], Entry]
) -> Iterator[Diagnostic]:
    """Yield the rule of each schedule in words and its next times, as the entry is *known*."""
    phrases = [text for each in plan.headlines if (text := each.props.get("SCHEDULE"))]
    if clock.now is None or not any(map(is_phrase, phrases)):
        return  # the usual case, without arming the plan
    by_line = dict(zip((each.line for each in plan.places()), plan.headlines, strict=True))
    places = {each.line: each for each in plan.places()}
    for scanned in scan_plan(plan, file=name, zone_name=clock.zone):
        item, text = scanned.item, scanned.mark.rule
        if isinstance(item, Entry) and text in phrases and is_phrase(text):
            entry = known(item)
            fires = islice(project(entry, clock.now, clock.now + 10 * _YEAR), 3)
            times = [wall_text(local(each.at, zone(entry.zone))) for each in fires] or ["never"]
            rule = written_rule(entry.rule, zone_name=entry.zone)
            message = f"the words mean {rule}: {', '.join(times)} {entry.zone}"
            headline = by_line[item.origin.line]
            at, fix = place_of(headline, "SCHEDULE"), anchor_words(entry) or None
            found = SectionFinding(at, "phrase-rule", Severity.INFO, message, fix)
            yield found.located(name, places[item.origin.line], headline.text)


def _same_names(name: str, plan: Plan, zone_name: str) -> Iterator[Diagnostic]:
    titles = [each.title for each in plan.headlines if is_entry(each) and "ID" not in each.props]
    if len(titles) == len(set(titles)):
        return  # the usual case, without arming the plan
    for item, first in twins(scan_plan(plan, file=name, zone_name=zone_name)):
        if not item.address.startswith("id:"):
            place, message = (name, item.origin.line, 1), f"not armed: {first} has the same name"
            fix = "give one of the two an :ID:"
            yield Diagnostic(*place, "name-twice", Severity.ERROR, message, fix)


@dataclass(frozen=True, slots=True)
class CheckedWorkflow:
    name: str
    headline: Headline
    place: SectionPlace
    clock: CheckClock

    @property
    def zone(self) -> str:
        own = self.headline.props.get("TZ", self.clock.zone)
        return self.clock.zone if _zone_error(own) else own

    def found(
        self, at: int, code: str, severity: Severity, message: str, *, fix: str = "", width: int = 0
    ) -> Diagnostic:
        found = SectionFinding(at, code, severity, message, fix or None, width)
        return found.located(self.name, self.place, self.headline.text)

    def value_at(self, key: str) -> int:
        return place_of(self.headline, key)

    def key_at(self, key: str) -> int:
        text = self.headline.text
        return text.index(":", text.rfind("\n", 0, self.value_at(key)) + 1)

    def when_at(self) -> int:
        planning = self.headline.planning
        if "SCHEDULE" in self.headline.props or planning is None or planning.scheduled is None:
            return self.value_at("SCHEDULE")
        return planning.scheduled.start


WorkflowCheck: TypeAlias = "Callable[[CheckedWorkflow, Rule], Iterable[Diagnostic]]"


def _check_properties(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    props = workflow.headline.props
    meant = {key: meant_by(key) for key in props}
    for key, known in meant.items():
        advice = f"did you mean :{known}:?" if known else _ADVICE.get(_joined(key))
        if key in KNOWN or advice is None or known in props:
            continue
        at, code = workflow.key_at(key), "property-typo" if known else "property-unknown"
        severity = Severity.ERROR if known in (*WHEN, *WHAT) else Severity.WARNING
        message, width = f":{key}: is ignored", len(key) + 2
        yield workflow.found(at, code, severity, message, fix=advice, width=width)
    if "SCHEDULE" in props and not is_entry(workflow.headline) and "COMMAND" not in meant.values():
        message = "this schedule has nothing to run"
        fix = "add :COMMAND: or :POST:, or tag the headline :workflow:"
        at = workflow.value_at("SCHEDULE")
        yield workflow.found(at, "schedule-idle", Severity.WARNING, message, fix=fix)


def _check_workflow(
    workflow: CheckedWorkflow, extra: Sequence[WorkflowCheck]
) -> Iterator[Diagnostic]:
    props, found = workflow.headline.props, workflow.found
    zone_error = _zone_error(props.get("TZ", workflow.clock.zone))
    if zone_error is not None:
        yield found(workflow.value_at("TZ"), "zone", Severity.ERROR, str(zone_error))
    yield from _check_policies(workflow, *props)
    yield from _check_calls(workflow)
    if "SCHEDULE" in props:
        yield from _check_cron(workflow, props["SCHEDULE"])
    try:
        rule = rule_of(workflow.headline, zone_name=workflow.zone)
    except AfterError as error:
        yield found(workflow.value_at("AFTER"), "after", Severity.ERROR, str(error))
        return
    except ScheduleError:
        return  # reported above, or by org.check
    now = workflow.clock.now
    if zone_error is None and now is not None:
        wall = once_wall(workflow.headline)
        for seam in seams(rule, zone_name=workflow.zone, start=now, end=now + _YEAR, wall=wall):
            yield found(workflow.when_at(), "clock-change", Severity.INFO, str(seam))
    for check in extra:
        yield from check(workflow, rule)


def _check_policies(workflow: CheckedWorkflow, *keys: str) -> Iterator[Diagnostic]:
    props, now = workflow.headline.props, workflow.clock.now
    calls = not props.keys().isdisjoint(WHAT)
    for key in keys:
        # The first day is compared with the last one.
        beside = {"UNTIL": props["UNTIL"]} if key == "FROM" and "UNTIL" in props else {}
        try:
            policy = policy_of({key: props[key], **beside}, zone_name=workflow.zone)
        except PolicyError as error:
            if error.key == key:
                yield workflow.found(workflow.value_at(key), "policy", Severity.ERROR, str(error))
            continue
        if calls and any(each.unit is not Unit.RUNS for each in policy.budget):
            message = "a command does not report what it costs, so this budget does not limit it"
            at, fix = workflow.value_at(key), "limit the number of runs, such as 20 runs/day"
            yield workflow.found(at, "budget-blind", Severity.WARNING, message, fix=fix)
        if key == "UNTIL" and policy.until and now and policy.until < now:
            message, fix = ":UNTIL: is in the past, so nothing is scheduled", "set a later day"
            at = workflow.value_at(key)
            yield workflow.found(at, "until-past", Severity.WARNING, message, fix=fix)


def _zone_error(name: str) -> ZoneError | None:
    try:
        zone(name)
    except ZoneError as error:
        return error
    return None


def _check_calls(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    props = workflow.headline.props
    called = [{key: props[key]} for key in ("COMMAND", "POST") if key in props][:1]
    if "COMMAND" in props and "ENV" in props:
        called.append({"COMMAND": "true", "ENV": props["ENV"]})
    is_read = True
    for each in called:
        try:
            call_of(each)
        except CommandError as error:
            is_read = False
            at = workflow.value_at(error.key)
            yield workflow.found(at, "command", Severity.ERROR, str(error))
    command = props.get("COMMAND", "")
    syntax = shell_syntax(command) if is_read else None
    if syntax is not None:
        at, word = syntax
        message = f"{shown(word)} is passed on unchanged: commands run without a shell"
        fix = f"to use a shell, call it explicitly: sh -c {quote(command)}"
        place, width = workflow.value_at("COMMAND") + at, len(word)
        yield workflow.found(place, "shell", Severity.WARNING, message, fix=fix, width=width)


def _check_cron(workflow: CheckedWorkflow, text: str) -> Iterator[Diagnostic]:
    at, floor = workflow.value_at("SCHEDULE"), workflow.clock.floor
    if is_phrase(text):
        try:
            compile_phrase(text)
        except PhraseError as error:
            place, width = at + error.column - 1, error.width
            yield workflow.found(place, "phrase", Severity.ERROR, str(error), width=width)
        return
    for part in text.split(";"):
        place = at + len(part) - len(part.lstrip())
        at += len(part) + 1
        try:
            cron = Cron(part.strip(), zone=workflow.zone)
        except CronError as error:
            column, width = place + error.column - 1, error.width
            yield workflow.found(column, "cron", Severity.ERROR, str(error), width=width)
            continue
        if cron.never:
            message = f"cron {cron.expression!r} matches no date"
            fix = "use a date that exists"
            yield workflow.found(place, "cron-never", Severity.ERROR, message, fix=fix)
            continue
        times = Cron(cron.expression).upcoming(_SAMPLE_FROM, _SAMPLE)
        closest = min((later - earlier for earlier, later in pairwise(times)), default=_YEAR)
        if closest < floor:
            message = f"runs {cron.describe()}, more often than every {format_duration(floor)}"
            fix = "lower check.floor if this is intended"
            yield workflow.found(place, "too-often", Severity.WARNING, message, fix=fix)


def is_near_entry(headline: Headline) -> bool:
    if "agent" in headline.tags:
        return False
    props = headline.props
    if is_entry(headline) or "SCHEDULE" in props:
        return True
    meant = {key: meant_by(key) for key in props if key not in KNOWN}
    spelled = {each for key, each in meant.items() if key not in _OTHER_NAMES.get(each or "", ())}
    is_timed = "SCHEDULE" in meant.values() or headline.scheduled is not None
    return bool(spelled & {"SCHEDULE", "COMMAND"}) or (is_timed and "COMMAND" in meant.values())


@lru_cache(maxsize=1024)  # a plan has few keys, each of them often
def meant_by(key: str) -> str | None:
    """Return the property that a key probably means; None if it is similar to none.

    >>> [meant_by(key) for key in ("SHEDULE", "CATCH-UP", "PAUSE_AFTER", "OVERLAPS", "TIMEZONE")]
    ['SCHEDULE', 'CATCHUP', 'PAUSE-AFTER', 'OVERLAP', 'TZ']
    >>> [meant_by(key) for key in ("EFFORT", "COMMENT", "COST", "CATEGORY", "SCHEDULE")]
    [None, None, None, None, None]
    """
    joined = _joined(key)
    if key in KNOWN:
        return None
    if joined in _MEANT:
        return _MEANT[joined]
    if joined in _ADVICE or joined in _WORDS:
        return None
    near = get_close_matches(joined, _JOINED, n=1, cutoff=0.85)
    return _JOINED[near[0]] if near else None


def _joined(key: str) -> str:
    return key.replace("-", "").replace("_", "")
