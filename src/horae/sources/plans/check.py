"""Findings of `check` that need the meaning of a schedule.

A rule that cannot be read, that never fires, or that a clock change affects; `org.check` has the
findings that the text alone shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.after import AfterError
from horae.core.clock_changes import seams
from horae.core.command import CommandError, call_of, shell_syntax
from horae.core.entry import PolicyError, policy_of
from horae.core.headline import is_entry
from horae.errors import ScheduleError
from horae.org.check import check_plans as kernel_check
from horae.org.check.finding import SectionFinding, place_of, shown
from horae.org.plan import Diagnostic, Severity
from horae.sources.plans.arming import rule_of
from horae.sources.plans.properties import KNOWN, WHAT, WHEN, advice_on, is_near_entry, meant_by
from horae.timing.cron import Cron, CronError
from horae.timing.duration import format_duration
from horae.timing.zone import ZoneError, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from horae.core.entry import Rule
    from horae.org.plan import Headline, Plan, SectionPlace

FLOOR: Final = timedelta(minutes=1)
_YEAR: Final = timedelta(days=366)
_SAMPLE: Final = 20


@dataclass(frozen=True, slots=True)
class CheckClock:
    """What a check of times is told: the plan's zone, the moment, and how often is too often."""

    zone: str = "UTC"
    now: datetime | None = None  # without it, nothing that depends on the moment is said
    floor: timedelta = FLOOR


def check_plans(
    plans: Iterable[tuple[str, Plan]], clock: CheckClock, *, extra: Sequence[WorkflowCheck] = ()
) -> list[Diagnostic]:
    """Return what is odd in several plans and between them, sorted by file and line."""
    known = list(plans)
    found = kernel_check(known)
    found.extend(each for name, plan in known for each in _check_plan(name, plan, clock, extra))
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


@dataclass(frozen=True, slots=True)
class CheckedWorkflow:
    """A workflow headline with its place."""

    name: str
    headline: Headline
    place: SectionPlace
    clock: CheckClock

    @property
    def zone(self) -> str:
        """Return its own zone, or the plan's if there is no such zone."""
        own = self.headline.props.get("TZ", self.clock.zone)
        return self.clock.zone if _zone_error(own) else own

    def found(
        self,
        at: int,
        code: str,
        severity: Severity,
        message: str,
        *,
        fix: str | None = None,
        width: int = 0,
    ) -> Diagnostic:
        """Return a finding at an offset of the section."""
        found = SectionFinding(at, code, severity, message, fix, width)
        return found.located(self.name, self.place, self.headline.text)

    def value_at(self, key: str) -> int:
        """Return where the value of a property stands."""
        return place_of(self.headline, key)

    def key_at(self, key: str) -> int:
        """Return where the name of a property stands."""
        text = self.headline.text
        return text.index(":", text.rfind("\n", 0, self.value_at(key)) + 1)

    def when_at(self) -> int:
        planning = self.headline.planning
        if "SCHEDULE" in self.headline.props or planning is None or planning.scheduled is None:
            return self.value_at("SCHEDULE")
        return planning.scheduled.start


WorkflowCheck: TypeAlias = "Callable[[CheckedWorkflow, Rule], Iterable[Diagnostic]]"


def _check_plan(
    name: str, plan: Plan, clock: CheckClock, extra: Sequence[WorkflowCheck]
) -> Iterator[Diagnostic]:
    """Yield the findings about the times of one plan."""
    for headline, place in zip(plan.headlines, plan.places(), strict=True):
        if is_near_entry(headline):
            workflow = CheckedWorkflow(name, headline, place, clock)
            yield from _check_properties(workflow)
            yield from _check_workflow(workflow, extra) if is_entry(headline) else ()


def _check_properties(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    """Yield the properties that are not read and were meant to be, and a time without work."""
    props = workflow.headline.props
    meant = {key: meant_by(key) for key in props}
    for key, known in meant.items():
        advice = f"did you mean :{known}:?" if known else advice_on(key)
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
    """Yield the findings about the times of one workflow, those of each property."""
    props = workflow.headline.props
    error = _zone_error(props.get("TZ", workflow.clock.zone))
    if error is not None:
        yield workflow.found(workflow.value_at("TZ"), "zone", Severity.ERROR, str(error))
    yield from _check_policies(workflow)
    yield from _check_calls(workflow)
    if "SCHEDULE" in props:
        yield from _check_cron(workflow, props["SCHEDULE"])
    try:
        rule = rule_of(workflow.headline, zone_name=workflow.zone)
    except AfterError as error:
        yield workflow.found(workflow.value_at("AFTER"), "after", Severity.ERROR, str(error))
        return
    except ScheduleError:
        return  # said above, or by the kernel
    if error is None:
        yield from _check_seams(workflow, rule)
    for check in extra:
        yield from check(workflow, rule)


def _zone_error(name: str) -> ZoneError | None:
    try:
        zone(name)
    except ZoneError as error:
        return error
    return None


def _check_policies(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    """Yield each policy that cannot be read."""
    for key, value in workflow.headline.props.items():
        try:
            policy_of({key: value}, zone_name=workflow.zone)
        except PolicyError as error:
            yield workflow.found(workflow.value_at(key), "policy", Severity.ERROR, str(error))


def _check_calls(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    """Yield what cannot be read of a command, an address or the variables of a command."""
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
    if is_read:
        yield from _check_shell(workflow)


def _check_shell(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    """Yield that a command is written for a shell, if it is and none is called."""
    command = workflow.headline.props.get("COMMAND", "")
    found = shell_syntax(command)
    if found is None:
        return
    at, word = found
    message = f"{shown(word)} is passed on unchanged: commands run without a shell"
    fix = f"to use a shell, call it explicitly: sh -c {quote(command)}"
    place = workflow.value_at("COMMAND") + at
    yield workflow.found(place, "shell", Severity.WARNING, message, fix=fix, width=len(word))


def _check_cron(workflow: CheckedWorkflow, text: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with each of the expressions of a :SCHEDULE:."""
    at = workflow.value_at("SCHEDULE")
    for part in text.split(";"):
        lead = len(part) - len(part.lstrip())
        try:
            cron = Cron(part.strip(), zone=workflow.zone)
        except CronError as error:
            place = at + lead + error.column - 1
            yield workflow.found(place, "cron", Severity.ERROR, str(error), width=error.width)
        else:
            yield from _check_rate(workflow, cron, at + lead)
        at += len(part) + 1


def _check_rate(workflow: CheckedWorkflow, cron: Cron, at: int) -> Iterator[Diagnostic]:
    """Yield a finding for a rule that never comes, or comes too often."""
    if cron.never:
        message = f"cron {cron.expression!r} matches no date"
        yield workflow.found(at, "cron-never", Severity.ERROR, message)
        return
    floor = workflow.clock.floor
    start = datetime.fromisoformat("2024-01-01T00:00:00+00:00")
    moments = Cron(cron.expression).upcoming(start, _SAMPLE)
    closest = min((later - earlier for earlier, later in pairwise(moments)), default=_YEAR)
    if closest < floor:
        message = f"runs {cron.describe()}, more often than every {format_duration(floor)}"
        fix = "lower check.floor if this is intended"
        yield workflow.found(at, "too-often", Severity.WARNING, message, fix=fix)


def _check_seams(workflow: CheckedWorkflow, rule: Rule) -> Iterator[Diagnostic]:
    """Yield each time of the year to come that a clock change touches."""
    now = workflow.clock.now
    if now is None:
        return
    for seam in seams(rule, zone_name=workflow.zone, start=now, end=now + _YEAR):
        yield workflow.found(workflow.when_at(), "clock-change", Severity.INFO, str(seam))
