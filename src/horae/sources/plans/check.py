"""Findings of `check` that need the meaning of a schedule; `org.check` has those of the text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.command import CommandError, call_of, shell_syntax
from horae.core.decide import AfterError
from horae.core.entry import PolicyError, policy_of
from horae.core.headline import is_entry
from horae.core.project import seams
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
_SAMPLE_FROM: Final = datetime.fromisoformat("2024-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class CheckClock:
    """The plan's zone, the current time, and the interval below which a schedule is too often."""

    zone: str = "UTC"
    now: datetime | None = None  # without it, no clock changes are found
    floor: timedelta = FLOOR


def check_plans(
    plans: Iterable[tuple[str, Plan]], clock: CheckClock, *, extra: Sequence[WorkflowCheck] = ()
) -> list[Diagnostic]:
    """Return the findings in several plans and between them, sorted by file and line."""
    known = list(plans)
    found = kernel_check(known)
    for name, plan in known:
        for headline, place in zip(plan.headlines, plan.places(), strict=True):
            if is_near_entry(headline):
                workflow = CheckedWorkflow(name, headline, place, clock)
                found += _check_properties(workflow)
                found += _check_workflow(workflow, extra) if is_entry(headline) else ()
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


@dataclass(frozen=True, slots=True)
class CheckedWorkflow:
    name: str
    headline: Headline
    place: SectionPlace
    clock: CheckClock

    @property
    def zone(self) -> str:
        """The zone of the headline, or the plan's if there is no such zone."""
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
    """Yield the properties that are misspelled or ignored, and a schedule without work."""
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
    props, found = workflow.headline.props, workflow.found
    zone_error = _zone_error(props.get("TZ", workflow.clock.zone))
    if zone_error is not None:
        yield found(workflow.value_at("TZ"), "zone", Severity.ERROR, str(zone_error))
    for key, value in props.items():
        try:
            policy_of({key: value}, zone_name=workflow.zone)
        except PolicyError as error:
            yield found(workflow.value_at(key), "policy", Severity.ERROR, str(error))
    yield from _check_calls(workflow)
    if "SCHEDULE" in props:
        yield from _check_cron(workflow, props["SCHEDULE"])
    try:
        rule = rule_of(workflow.headline, zone_name=workflow.zone)
    except AfterError as error:
        yield found(workflow.value_at("AFTER"), "after", Severity.ERROR, str(error))
        return
    except ScheduleError:
        return  # said above, or by org.check
    now = workflow.clock.now
    if zone_error is None and now is not None:
        for seam in seams(rule, zone_name=workflow.zone, start=now, end=now + _YEAR):
            yield found(workflow.when_at(), "clock-change", Severity.INFO, str(seam))
    for check in extra:
        yield from check(workflow, rule)


def _zone_error(name: str) -> ZoneError | None:
    try:
        zone(name)
    except ZoneError as error:
        return error
    return None


def _check_calls(workflow: CheckedWorkflow) -> Iterator[Diagnostic]:
    """Yield what cannot be read of a command, and a command that is written for a shell."""
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
    """Yield each expression that cannot be read, never comes, or comes too often."""
    at, floor = workflow.value_at("SCHEDULE"), workflow.clock.floor
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
            yield workflow.found(place, "cron-never", Severity.ERROR, message)
            continue
        times = Cron(cron.expression).upcoming(_SAMPLE_FROM, _SAMPLE)
        closest = min((later - earlier for earlier, later in pairwise(times)), default=_YEAR)
        if closest < floor:
            message = f"runs {cron.describe()}, more often than every {format_duration(floor)}"
            fix = "lower check.floor if this is intended"
            yield workflow.found(place, "too-often", Severity.WARNING, message, fix=fix)
