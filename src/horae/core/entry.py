"""Entries: a rule, a work and a policy, from a plan, crew, board or trigger.

Each policy property is declared once, as a field of `Policy`. Headlines, triggers, tasks, the
ledger, `check`, `explain`, exports, the command line and the documentation read `PROPERTIES`. A new
property is a new field, and the code that obeys it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

from msgspec import Struct, field
from msgspec.structs import fields, replace as struct_replace

from horae.core import budget as purses
from horae.core.actor import API_FIX, api_scopes
from horae.errors import HoraeError, ScheduleError
from horae.org.plan import parse_timestamp
from horae.timing.cron import Cron, is_phrase
from horae.timing.duration import format_duration, parse_duration
from horae.timing.repeater import Repeater, parse_at, stamp_text
from horae.timing.zone import instant, local, parse_rfc3339, zone

if TYPE_CHECKING:
    from horae.timing.phrases import Compiled


COMMENTED: Final = " is commented out"
ARCHIVED: Final = " is archived"
_MOST_EXPRESSIONS: Final = 50
HOST_FIX: Final = "write labels of a node, such as gpu, or its name"
_SHOWN: Final = 60
_TINY: Final = timedelta(microseconds=1)
MOST_SAME: Final = 20
_LOGIN: Final = re.compile(r"[\w.@+-]{1,64}")
_LABEL: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_RFC3339: Final = re.compile(r"[0-9-]{10}[Tt]")


class CatchUp(StrEnum):
    ALL = "all"  # the newest ten run, oldest first
    LATEST = "latest"  # one late run replaces all
    NONE = "none"  # none runs; each has a receipt


class Overlap(StrEnum):
    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class Retry(Struct, frozen=True, gc=False):
    attempts: int
    wait: timedelta

    def __str__(self) -> str:
        many = self.attempts
        words = "up to 1 retry," if many == 1 else f"up to {many} retries, the first"
        return f"{words} after {format_duration(self.wait)}"


class PolicyError(ScheduleError, code="policy"):
    def __init__(self, key: str, value: str, *, reason: str) -> None:
        self.key, self.value = key, value
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        super().__init__(f":{key}: {shown}: {reason}")


def _retry(text: str) -> Retry:
    attempts, _, wait = text.partition(" ")
    if not attempts.isascii() or not attempts.isdecimal() or not 0 < int(attempts[:6]) <= 100:
        raise ValueError
    return Retry(int(attempts), parse_duration(wait.strip() or "30s"))


def _bound(text: str, zone_name: str, *, days: int) -> datetime:
    if _RFC3339.match(text):
        return parse_rfc3339(text)
    stamp = parse_timestamp(text if text.startswith(("<", "[")) else f"<{text}>")
    if stamp is None:
        raise ValueError
    anchor = parse_at(stamp.at)
    place = zone(zone_name)
    if anchor.has_time or not days:
        return instant(anchor.start, place)
    # Up to the next midnight, as the last local hour of a day may come twice.
    try:
        return instant(anchor.start + timedelta(days=days), place) - _TINY
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or int(text) < 1:
        raise ValueError
    return int(text)


def _few(text: str) -> int:
    if not 2 <= (number := _number(text)) <= MOST_SAME:
        raise ValueError
    return number


def _login(text: str) -> str:
    if not _LOGIN.fullmatch(text.strip()):
        raise ValueError
    return text.strip()


def _command(text: str) -> str:
    if not shlex.split(text) or "\0" in text:
        raise ValueError
    return text.strip()


def labels(text: str) -> tuple[str, ...]:
    """Parse the labels of nodes, without repetition; ValueError if one is not valid.

    >>> labels("gpu, berlin gpu")
    ('gpu', 'berlin')
    """
    found = tuple(dict.fromkeys(re.split(r"[\s,]+", text.strip())))
    if not all(map(_LABEL.fullmatch, found)):
        raise ValueError(text)
    return found


@dataclass(frozen=True, slots=True)
class PolicyProperty:
    key: str  # in the drawer of a headline
    type: type  # of its values
    parse: Callable[[str, str], object]
    words: str  # a value as part of a sentence
    fix: str  # the fix in the error for text that cannot be read
    help: str
    name: str = ""  # of the field of a policy
    option: str = ""  # in files of triggers and tasks, in JSON and in the ledger
    default: object = None
    in_tasks: bool = False  # allowed in recurring tasks, not only in headlines and triggers
    in_agents: bool = False  # allowed in agent definitions
    decides_times: bool = False  # changes the times at which the entry fires
    unfit: str = ""  # why other schedulers cannot import an entry with it
    other_names: tuple[str, ...] = ()  # its names in other schedulers

    @property
    def metavar(self) -> str:
        return {timedelta: "LENGTH", int: "N", datetime: "DATE"}.get(self.type, "TEXT")

    def of(self, policy: Policy) -> Any:
        return getattr(policy, self.name)


class Policy(Struct, frozen=True, omit_defaults=True, gc=False):
    """How an entry is run; a value that is None depends on its rule."""

    # fmt: off
    catchup: Annotated[CatchUp | None, PolicyProperty(
        "CATCHUP", CatchUp, lambda text, _: CatchUp(text.lower()), "catch-up {}",
        fix="write all, latest or none",
        help="Which missed times to catch up: all, latest or none.",
        in_tasks=True,
        other_names=("MISFIRE", "MISFIRE_GRACE_TIME", "PERSISTENT", "COALESCE"),
    )] = None
    overlap: Annotated[Overlap, PolicyProperty(
        "OVERLAP", Overlap, lambda text, _: Overlap(text.lower()), "overlap {}",
        fix="write skip, queue or allow",
        help="What to do while the previous run is running: skip, queue or allow.",
        other_names=("CONCURRENCY", "CONCURRENCY_POLICY", "MAX_CONCURRENT", "MAX_INSTANCES"),
    )] = Overlap.SKIP
    retry: Annotated[Retry | None, PolicyProperty(
        "RETRY", Retry, lambda text, _: _retry(text), "{}",
        fix="write the number of retries (at most 100) and the first wait, such as 3 30s",
        help="How many times to retry a failed run, and the first delay: 2 5m.",
        other_names=(
            "RETRIES", "MAX_RETRIES", "RETRY_DELAY",
            "ATTEMPTS", "MAX_ATTEMPTS", "BACKOFF",
        ),
    )] = None
    timeout: Annotated[timedelta | None, PolicyProperty(
        "TIMEOUT", timedelta, lambda text, _: parse_duration(text), "time limit {}",
        fix="write a duration such as 15m",
        help="The time limit of a run, such as 15m.",
        other_names=("TIME_LIMIT", "MAX_RUNTIME", "MAX_DURATION", "RUNTIMEMAXSEC"),
    )] = None
    jitter: Annotated[timedelta, PolicyProperty(
        "JITTER", timedelta, lambda text, _: parse_duration(text), "jitter up to {}",
        fix="write a duration such as 5m",
        help="Start a run up to this much later, such as 5m.",
        other_names=("RANDOM_DELAY", "RANDOMIZEDDELAYSEC", "SPLAY"),
    )] = timedelta(0)
    pause_after: Annotated[int | None, PolicyProperty(
        "PAUSE-AFTER", int, lambda text, _: _number(text), "pauses after {} failures in a row",
        fix="write a number of failures, such as 5",
        help="Pause after this many failures in a row.",
        other_names=("MAX_FAILURES", "FAILURE_THRESHOLD"),
    )] = None
    from_at: Annotated[datetime | None, PolicyProperty(
        "FROM", datetime, partial(_bound, days=0), "from {}",
        fix="write a date such as 2026-06-01",
        help="The first day of the schedule.",
        in_tasks=True, decides_times=True, unfit="the entry has a start date (:FROM:)",
        other_names=("START_DATE", "STARTDATE", "NOT_BEFORE"),
    )] = field(default=None, name="from")
    until: Annotated[datetime | None, PolicyProperty(
        "UNTIL", datetime, partial(_bound, days=1), "until {}",
        fix="write a date such as 2026-12-31",
        help="The last day of the schedule.",
        in_tasks=True, decides_times=True, unfit="the entry has an end date (:UNTIL:)",
        other_names=("END_DATE", "ENDDATE", "DTEND"),
    )] = None
    requires: Annotated[tuple[str, ...], PolicyProperty(
        "HOST", tuple, lambda text, _: labels(text), "on a node with {}",
        fix=HOST_FIX,
        help="The labels that a node of a cluster must have.",
    )] = ()
    api: Annotated[tuple[str, ...], PolicyProperty(
        "API", tuple, lambda text, _: api_scopes(text), "with an API token for {}",
        fix=API_FIX,
        help="The scopes of the API token that the agent gets.",
    )] = ()
    budget: Annotated[tuple[purses.Purse, ...], PolicyProperty(
        "BUDGET", tuple, purses.parse_budget, "budget {}",
        fix=purses.FIX,
        help="What its runs may spend: $2/day; 200k tokens/week; 20 runs/day.",
        unfit="the entry has a budget (:BUDGET:)",
        other_names=("MAX_BUDGET", "MAX_BUDGET_USD", "MAX_COST", "COST_LIMIT"),
    )] = ()
    account: Annotated[str, PolicyProperty(
        "ACCOUNT", str, lambda text, _: _login(text), "account {}",
        fix="write a name such as work",
        help="The login whose usage limits the runs share, such as work.",
        in_agents=True,
    )] = ""
    otherwise: Annotated[str, PolicyProperty(
        "ELSE", str, lambda text, _: _command(text), "else {}",
        fix="write a command such as codex exec, or the name of an agent",
        help="The command or agent that answers on a usage limit or an error of the provider.",
        in_agents=True,
        other_names=("FALLBACK", "FALLBACK_MODEL", "BACKUP"),
    )] = field(default="", name="else")
    idle_timeout: Annotated[timedelta | None, PolicyProperty(
        "IDLE-TIMEOUT", timedelta, lambda text, _: parse_duration(text),
        "time limit {} without output",
        fix="write a duration such as 10m",
        help="End a run that prints nothing for this long, such as 10m.",
        in_agents=True,
        other_names=("IDLE", "INACTIVITY_TIMEOUT", "SILENCE"),
    )] = None
    same: Annotated[int | None, PolicyProperty(
        "SAME", int, lambda text, _: _few(text), "stuck after {} equal results",
        fix=f"write a number of results from 2 to {MOST_SAME}, such as 5",
        help="Call the entry stuck after this many equal results.",
        in_agents=True,
    )] = None
    # fmt: on

    def clip(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        """Return the part of a window, after *start* and up to *end*, in which a rule may fire."""
        if self.from_at is not None:
            start = max(start + _TINY, self.from_at) - _TINY
        return start, end if self.until is None else min(end, self.until)

    def allows(self, moment: datetime) -> bool:
        is_early = self.from_at is not None and moment < self.from_at
        return not is_early and (self.until is None or moment <= self.until)


DEFAULT: Final = Policy()
_TYPES: Final = get_type_hints(Policy, globals(), include_extras=True)
PROPERTIES: Final[tuple[PolicyProperty, ...]] = tuple(
    replace(
        _TYPES[each.name].__metadata__[0],
        name=each.name,
        option=each.encode_name,
        default=each.default,
    )
    for each in fields(Policy)
)


def policy_of(props: Mapping[str, str], *, zone_name: str) -> Policy:
    values: dict[str, Any] = {}
    for each in PROPERTIES:
        text = props.get(each.key)
        if text is None:
            continue
        try:
            values[each.name] = each.parse(text, zone_name)
        except (HoraeError, ValueError) as error:
            reason = str(error) if isinstance(error, HoraeError) else each.fix
            raise PolicyError(each.key, text, reason=reason) from None
    if "until" in values and values.get("from_at", values["until"]) > values["until"]:
        raise PolicyError("FROM", props["FROM"], reason=f"is after the last day, {props['UNTIL']}")
    return Policy(**values) if values else DEFAULT


class Work(StrEnum):
    WORKFLOW = "workflow"  # run the code blocks of a plan
    PROMPT = "prompt"  # send a prompt to an agent
    TICK = "tick"  # start a tick of an agent
    RECYCLE = "recycle"  # move a recurring task back to todo
    DISPATCH = "dispatch"  # assign a task to a member
    COMMAND = "command"  # run a program
    POST = "post"  # call an address


KEEPER: Final = "keeper"  # the address of a single keeper, and its name unless its file sets one


class Wake(StrEnum):
    ALWAYS = "always"
    DUE = "due"  # only if there is work


class Occasion(StrEnum):
    FAILED = "failed"  # failed, killed or interrupted
    LATE = "late"  # started more than a minute after its time
    MISSED = "missed"  # the engine was down
    STUCK = "stuck"  # the third failure in a row
    RECOVERED = "recovered"  # success after a failure
    BROKEN = "broken"  # the text can no longer be read; the last valid text stays armed
    BUDGET = "budget"  # a budget is nearly spent, or had no room for the run


# Frozen structs of plain values form no cycles, so the collector need not track them.
class _TaggedRule(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind"): ...


class CronRule(_TaggedRule, frozen=True, tag="cron"):
    """One cron expression, or several that fire at the times of each."""

    crons: tuple[Cron, ...]


def cron_rule(text: str, *, zone_name: str) -> CronRule:
    if ";" not in text:
        return CronRule((Cron(text.strip(), zone=zone_name),))
    parts = text.split(";")
    if len(parts) > _MOST_EXPRESSIONS:
        reason = f"has {len(parts)} expressions; the limit is {_MOST_EXPRESSIONS}"
        raise PolicyError("SCHEDULE", text, reason=reason)
    return CronRule(tuple(Cron(part.strip(), zone=zone_name) for part in parts))


def phrase_cron(text: str) -> str:
    from horae.timing.phrases import PhraseError, compile_phrase

    compiled = compile_phrase(text)
    if compiled.anchor is not None:
        reason = "is counted from a date, which cron cannot express; name days of the week or month"
        raise PhraseError(text, reason=reason, width=len(text))
    return str(compiled)


def schedule_rule(text: str, *, zone_name: str, start: datetime | None = None) -> Rule:
    """Parse a :SCHEDULE: in cron or in words; intervals count from *start*.

    Without *start* the rule floats: the ledger counts it from its first scan.
    """
    if not is_phrase(text):
        return cron_rule(text, zone_name=zone_name)
    from horae.timing.phrases import compile_phrase

    return compiled_rule(compile_phrase(text), zone_name=zone_name, now=start)[0]


def compiled_rule(compiled: Compiled, *, zone_name: str, now: datetime | None) -> tuple[Rule, str]:
    """Return the rule of a phrase and its text; a rule without a date counts from *now*."""
    anchor, repeater = compiled.anchor, compiled.repeater
    if anchor is None:
        text = "; ".join(compiled.crons)
        return cron_rule(text, zone_name=zone_name), text
    place = zone(zone_name)
    if repeater is None:
        return OnceRule(instant(anchor, place)), str(compiled)
    rule = RepeaterRule(anchor, repeater, compiled.floats)
    if now is not None:
        rule = struct_replace(anchored(rule, zone_name=zone_name, now=now), floats=False)
    return rule, stamp_text(rule.anchor, repeater)


class RepeaterRule(_TaggedRule, frozen=True, tag="repeater"):
    """An org timestamp with a repeater; the anchor is local time in the entry's zone.

    It floats if it was written in words that name no first day.
    """

    anchor: datetime
    repeater: Repeater
    floats: bool = False


def anchored(
    rule: RepeaterRule, *, zone_name: str, now: datetime, was: Rule | None = None
) -> RepeaterRule:
    """Anchor a floating rule: as it *was* anchored, or at its next time.

    >>> from horae.timing.repeater import parse_repeater
    >>> rule = RepeaterRule(datetime(2001, 1, 5, 17, 30), parse_repeater("++2w"), floats=True)
    >>> anchored(rule, zone_name="UTC", now=datetime(2026, 6, 1, tzinfo=UTC)).anchor
    datetime.datetime(2026, 6, 5, 17, 30)
    """
    if not rule.floats:
        return rule
    place, turns = zone(zone_name), struct_replace(rule.repeater, count=1)
    if isinstance(was, RepeaterRule) and was.repeater == rule.repeater:
        at = instant(was.anchor, place)
        if turns.after(rule.anchor, at - _TINY, zone=place) == at:
            return struct_replace(rule, anchor=was.anchor)
    first = turns.after(rule.anchor, now, zone=place)
    return rule if first is None else struct_replace(rule, anchor=local(first, place))


class OnceRule(_TaggedRule, frozen=True, tag="once"):
    at: datetime
    delay: str | None = None


class CadenceRule(_TaggedRule, frozen=True, tag="cadence"):
    """An interval: the next tick depends on the end and the outcome of the last one."""

    base: timedelta
    first_at: datetime
    ticks: int = 0  # number of ticks
    streak: int = 0  # ticks without work in a row
    failures: int = 0  # failed ticks in a row


class OnDemandRule(_TaggedRule, frozen=True, tag="on_demand"): ...


class AfterRule(_TaggedRule, frozen=True, tag="after"):
    """A run after receipts of one entry (:ID: or title), of one agent (`agent:NAME`), or of all."""

    occasions: tuple[Occasion, ...]
    of: str = ""


Rule: TypeAlias = CronRule | RepeaterRule | OnceRule | CadenceRule | OnDemandRule | AfterRule

REQUEST: Final = "request"  # the file of an origin that is an HTTP request
ASKED: Final = "asked"  # the source of entries that HTTP requests create
_TRIGGERS: Final = "triggers"  # the directory of an origin that is in the ledger
_SUFFIXES: Final = (".org", ".md", ".yaml", ".yml")  # suffixes of files in a directory of this name


class Origin(Struct, frozen=True, gc=False):
    """Where an entry is written.

    >>> str(Origin("plan.org", 3)), str(Origin.of_trigger("deploy"))
    ('plan.org:3', 'trigger deploy')
    """

    file: str
    line: int

    @classmethod
    def of_trigger(cls, name: str) -> Origin:
        return cls(f"{_TRIGGERS}/{name}", 1)

    @property
    def trigger(self) -> str:
        folder, _, name = self.file.rpartition("/")
        is_made = folder.rpartition("/")[2] == _TRIGGERS and self.line == 1
        return name if is_made and not name.endswith(_SUFFIXES) else ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        if self.trigger:
            return f"trigger {self.trigger}"
        return "HTTP request" if self.file == REQUEST else self.place


class Pause(Struct, frozen=True, gc=False):
    at: datetime
    until: datetime | None = None
    note: str = ""
    by: str = ""  # the actor; empty if it was not recorded

    def covers(self, moment: datetime) -> bool:
        return self.at <= moment and (self.until is None or moment < self.until)


class Entry(Struct, frozen=True, gc=False):
    """A rule, a work and a policy.

    The ledger assigns the `number` (0: none yet). Every planned time up to `accounted_to` has its
    receipt; `ended_at` is the end of the last planned run.
    """

    address: str
    origin: Origin
    title: str
    rule: Rule
    work: Work = Work.WORKFLOW
    agents: tuple[str, ...] = ()  # agents that it occupies while it runs
    policy: Policy = DEFAULT
    zone: str = "UTC"
    deadline: datetime | None = None  # the end of its DEADLINE; information that fires nothing
    digest: str = ""
    number: int = 0
    accounted_to: datetime | None = None
    ended_at: datetime | None = None
    pause: Pause | None = None


def is_net(item: Entry | Unarmed) -> bool:
    """Return whether an item is only the check after a trigger, and so is not shown."""
    rule = item.rule if isinstance(item, Entry) and item.work is Work.RECYCLE else None
    return isinstance(rule, OnceRule) and rule.delay not in {None, key_time(rule.at)}


def floating(item: Entry | Unarmed) -> bool:
    return isinstance(item, Entry) and isinstance(item.rule, RepeaterRule) and item.rule.floats


def anchored_item(
    item: Entry | Unarmed, *, now: datetime, was: Entry | Unarmed | None = None
) -> Entry | Unarmed:
    if not isinstance(item, Entry) or not isinstance(item.rule, RepeaterRule):
        return item
    known = was.rule if isinstance(was, Entry) else None
    rule = anchored(item.rule, zone_name=item.zone, now=now, was=known)
    return item if rule is item.rule else struct_replace(item, rule=rule)


class PlanTask(Struct, frozen=True, gc=False):
    """An open headline with a date but nothing to run."""

    origin: Origin
    title: str
    scheduled: datetime | None
    deadline: datetime | None


class Unarmed(Struct, frozen=True, gc=False):
    """A headline that is written like an entry and cannot run."""

    address: str
    origin: Origin
    title: str
    reason: str
    is_error: bool = False  # its text is wrong; the ledger stores only the reason

    @property
    def is_hidden(self) -> bool:
        return self.reason[:1] in {"'", '"'} and self.reason.endswith((COMMENTED, ARCHIVED))


def key_time(moment: datetime) -> str:
    """Return a time in the form of keys: in UTC and whole seconds."""
    if moment.utcoffset() is None:  # Python would silently assume the zone of the machine
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")
    # Not strftime: it writes the year 999 with three digits on some systems.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
