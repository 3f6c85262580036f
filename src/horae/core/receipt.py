"""Receipts: their status and its reason, the transitions, and the meaning of a run's end.

    waiting ⇄ held                   it lacks something
    waiting, held → skipped          its entry was removed or paused
    waiting → starting → running → done | no_work | failed | killed | interrupted
    starting → waiting               nothing has run yet
    starting → failed                its run could not be made
    running → waiting                a failure with a retry left, or the run never started
    running → held                   a usage limit ended the run, which is no attempt

Skipped, coalesced, missed and the ends of a run are final. The words of a reason may change with
every version; a code never changes its meaning and is never used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from msgspec import Struct

from horae.core.actor import ENGINE
from horae.core.entry import Origin, Policy, Retry, Work, key_time
from horae.timing.duration import format_duration


class Status(StrEnum):
    WAITING = "waiting"  # it will run
    HELD = "held"  # it lacks something
    STARTING = "starting"  # its run is being made
    RUNNING = "running"
    DONE = "done"
    NO_WORK = "no_work"
    FAILED = "failed"
    KILLED = "killed"  # it exceeded its time limit
    INTERRUPTED = "interrupted"  # the engine exited during it
    SKIPPED = "skipped"  # not to be run: overlap, pause, removal
    COALESCED = "coalesced"  # a later time runs for it
    MISSED = "missed"  # the engine was down
    LIMITED = "limited"  # only of a run: a usage limit ended it, and its receipt is held


class ReasonCode(StrEnum):
    # Decided by the schedule and its policies.
    DUE = "due"  # the scheduled time was reached
    CAUGHT_UP = "caught_up"  # the scheduled time was missed, and catch-up runs it now
    DELAY_DUE = "delay_due"  # the time of a delay was missed; a delay stays due until it runs
    ADDED_LATE = "added_late"  # the entry was added after its only scheduled time
    CATCHUP_NONE = "catchup_none"  # missed while the engine was down, and catch-up is none
    CATCHUP_LIMIT = "catchup_limit"  # catch-up is all, and more was missed than its limit
    CATCHUP_WINDOW = "catchup_window"  # catch-up is latest, and the time is too long ago
    CATCHUP_LATEST = "catchup_latest"  # catch-up is latest, and a later time runs instead
    OVERLAP_RUNNING = "overlap_running"  # the previous run was running, and overlap is skip
    OVERLAP_HELD = "overlap_held"  # the previous run is held, and overlap is skip
    OVERLAP_WAITING = "overlap_waiting"  # the previous run waits to start, and overlap is skip
    BUDGET = "budget"  # a budget has no room for the run, or the run exceeded one

    # Ended with the entry, its schedule or the ledger.
    PAUSED = "paused"  # the entry was paused
    RULE_CHANGED = "rule_changed"  # the schedule of the entry was changed
    NOT_ARMED = "not_armed"  # the entry is still in the plan and cannot run
    ENTRY_REMOVED = "entry_removed"  # the entry is not, or was not, in the plan
    ENTRY_BROKEN = "entry_broken"  # an edit cannot be read; the last valid version stays armed
    LEDGER_RESTORED = "ledger_restored"  # a backup was restored
    LEDGER_NEW = "ledger_new"  # not known whether it ran, since the ledger was newly created

    # Requested.
    REQUESTED = "requested"  # a run was requested
    BACKFILL = "backfill"  # a run for a past time was requested
    RETRY_REQUESTED = "retry_requested"  # a held run was requested again
    AFTER_ENTRY = "after_entry"  # another entry or workflow ended
    MESSAGE = "message"  # a webhook received a message
    GITHUB = "github"  # GitHub lists a new issue or pull request
    AGENT_EVENT = "agent_event"  # something happened to an agent, such as the start of a session
    ASSIGNED = "assigned"  # the board assigned a task to an agent

    # Held, released, rejected.
    APPROVAL_REQUIRED = "approval_required"  # the run waits for an approval
    AGENT_UNAVAILABLE = "agent_unavailable"  # the agent does not exist or is disabled
    AGENT_BUSY = "agent_busy"  # the agent is, or was, busy with another run
    NOT_READY = "not_ready"  # the run needs something that is missing, such as a program
    SECRET_UNREADABLE = "secret_unreadable"  # noqa: S105 - the run needs a secret that cannot be read
    USAGE_LIMIT = "usage_limit"  # the account of the agent's program reached its usage limit
    OVERLOADED = "overloaded"  # the provider of the agent's program is overloaded
    APPROVED = "approved"  # the run was approved
    REJECTED = "rejected"  # the run was rejected
    APPROVAL_EXPIRED = "approval_expired"  # the run was not approved in time
    POLICY_CHANGED = "policy_changed"  # the tool policy of the trigger was changed
    AGENT_AVAILABLE = "agent_available"  # the agent is available again
    ENGINE_RESTARTED = "engine_restarted"  # a held run is tried again, or a run could not go on
    READY = "ready"  # the cause of the hold is resolved
    LIMIT_ENDED = "limit_ended"  # the usage limit has ended, or is tried

    # Starting, and given back before anything has run.
    STARTING = "starting"  # the run is being started
    STARTED = "started"  # the run has started
    START_UNCONFIRMED = "start_unconfirmed"  # the ledger could not confirm the start
    LAUNCHER_LOST = "launcher_lost"  # the launcher ended, or did not answer
    STOPPED_BEFORE_START = "stopped_before_start"  # the engine or the node was stopped before
    EXITED_BEFORE_START = "exited_before_start"  # the engine exited before
    LOST_BEFORE_START = "lost_before_start"  # the node was lost before
    NEVER_STARTED = "never_started"  # the run was made and never started

    # Ends.
    COMPLETED = "completed"  # the run ended well
    NO_WORK = "no_work"  # the run found nothing to do
    EXIT_CODE = "exit_code"  # the exit code was not 0
    SIGNAL = "signal"  # a signal ended the process
    PROVIDER_ERROR = "provider_error"  # the provider of the agent's program reported an error
    REPORTED = "reported"  # the run itself reported a failure
    STEP_FAILED = "step_failed"  # a step of the workflow failed
    CANNOT_START = "cannot_start"  # the run could not be made or started
    INTERNAL_ERROR = "internal_error"  # an unexpected error of the engine
    EDIT_FAILED = "edit_failed"  # the engine could not write a rest page or a task file
    RECORD_UNWRITABLE = "record_unwritable"  # the record of the run cannot be written
    DEADLOCK = "deadlock"  # the run needs what cannot become free before it ends
    TIME_LIMIT = "time_limit"  # the run exceeded its time limit
    IDLE_LIMIT = "idle_limit"  # the run printed nothing for too long
    MEMORY_LIMIT = "memory_limit"  # the run exceeded its memory limit, or memory ran out
    CANCELLED = "cancelled"  # the run was cancelled
    ENGINE_STOPPED = "engine_stopped"  # the engine or the node was stopped during the run
    ENGINE_EXITED = "engine_exited"  # the engine exited during the run
    LEASE_EXPIRED = "lease_expired"  # the node did not renew its lease in time
    NODE_LOST = "node_lost"  # the node was lost during the run
    SUPERVISOR_LOST = "supervisor_lost"  # the supervisor of the run died
    UNKNOWN_PROTOCOL = "unknown_protocol"  # a new version of the engine could not adopt the run
    RESULT_UNREADABLE = "result_unreadable"  # the result of the run cannot be read
    GAVE_UP = "gave_up"  # the engine exited too often over this run
    REST_WRITTEN = "rest_written"  # an agent's rest wrote its page
    REST_QUIET = "rest_quiet"  # an agent's rest had nothing to write
    TASK_MOVED = "task_moved"  # a recurring task was moved back to todo
    TASK_NOT_MOVED = "task_not_moved"  # a recurring task stays where it is
    TASK_NOT_STARTED = "task_not_started"  # the task changed before its run began

    # Why a waiting run does not start at the moment; shown, and never stored.
    CAN_START = "can_start"  # the run is ready to start
    NO_SLOT = "no_slot"  # every slot is taken
    NO_NODE = "no_node"  # no node with the required labels is up
    NODE_FULL = "node_full"  # every slot of the nodes that can take the run is taken
    CREW_FULL = "crew_full"  # the crew has no free slot
    CREW_RESERVED = "crew_reserved"  # the next slot of the crew is reserved for another run
    AGENT_RESERVED = "agent_reserved"  # the agent is reserved for another run
    ENTRY_BUSY = "entry_busy"  # another run of the entry is not over
    ENTRY_RESERVED = "entry_reserved"  # another run of the entry is first in the queue

    OTHER = "other"  # none of these


# What the engine tries again at its next start, or when the cause is resolved.
HELD_BACK: Final = frozenset({ReasonCode.NOT_READY, ReasonCode.SECRET_UNREADABLE})
# What holds all receipts of an account, until it is tried again.
LIMITS: Final = frozenset({ReasonCode.USAGE_LIMIT, ReasonCode.OVERLOADED})


class Reason(str):
    """The words of a reason with its code; words without a code have an empty one."""

    __slots__ = ("code",)

    code: str  # a ReasonCode; a newer ledger may have others, an older one has ""

    def __new__(cls, code: str, words: str) -> Self:
        reason = str.__new__(cls, words)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # a word more
        return self.code, str(self)


NO_REASON: Final = Reason("", "")  # before the end


def coded(words: str, code: ReasonCode) -> Reason:
    return words if isinstance(words, Reason) else Reason(code, words)


class Receipt(Struct, frozen=True, gc=False):
    key: str
    status: Status
    reason: Reason
    planned_at: datetime
    start_at: datetime  # planned_at and jitter
    through_at: datetime | None = None  # the last time of a range
    count: int = 1
    note: str = ""  # of the requester


class Filed(Struct, frozen=True, gc=False):
    """A receipt in the ledger.

    `attempts` counts the runs that were started or could not be made, `deaths` the engines that
    died during its runs; `parent` is the receipt inside whose run it was requested.
    """

    number: int
    entry: int
    receipt: Receipt
    decided_at: datetime
    origin: Origin
    digest: str
    commit: str | None
    policy: Policy
    source: str = ""
    title: str = ""
    work: Work = Work.WORKFLOW
    agents: tuple[str, ...] = ()
    parent: int | None = None
    attempts: int = 0
    deaths: int = 0
    ended_at: datetime | None = None
    settled_at: datetime | None = None
    machine: str = ""  # the node that is to run it, once that is decided
    actor: str = ENGINE  # who requested it

    @property
    def status(self) -> Status:
        return self.receipt.status

    @property
    def lateness(self) -> timedelta:
        return self.decided_at - self.receipt.planned_at

    @property
    def late(self) -> timedelta:
        """The delay of the decision after the planned time; 0 for a request."""
        is_late = is_planned(self.receipt.key) and self.lateness > timedelta(0)
        return self.lateness if is_late else timedelta(0)


WAITS: Final = frozenset({Status.WAITING, Status.HELD})
GOING: Final = frozenset({Status.STARTING, Status.RUNNING})
BAD: Final = frozenset({Status.FAILED, Status.KILLED, Status.INTERRUPTED})
ENDS: Final = BAD | {Status.DONE, Status.NO_WORK}
FINAL: Final = ENDS | {Status.SKIPPED, Status.COALESCED, Status.MISSED}
RECEIPT_STATUSES: Final = tuple(each for each in Status if each is not Status.LIMITED)
OPEN: Final = WAITS | GOING

RETRY_CAP: Final = timedelta(hours=1)  # the maximum of doubling; a longer first wait is kept

BROKEN: Final = "broken:"  # prefix of the key of an edit that made an entry's text unreadable

GONE: Final = "no longer in the plan"  # why an entry is neither started nor armed any more

# Receipts with these keys are for times of the entry's own rule.
_PLANNED: Final = ("cron:", "at:", "delay:", "tick:")

_NEXT: Final[dict[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset({Status.HELD, Status.STARTING, Status.SKIPPED}),
    Status.HELD: frozenset({Status.WAITING, Status.SKIPPED}),
    Status.STARTING: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED}),
    Status.RUNNING: ENDS | {Status.HELD},
}

SHOWN: Final = 200  # characters of a reason, and of a line of output
LINES: Final = 3  # of the end of the output, in a reason
LAST: Final = 300  # characters of these lines
TAIL_LINES: Final = 10  # of the end of the output, in an alert
TAIL: Final = 1000  # characters of these lines

ENGINE_EXITED: Final = Reason(ReasonCode.ENGINE_EXITED, "the engine exited during the run")
NEVER_STARTED: Final = Reason(ReasonCode.NEVER_STARTED, "the run was never started")

_NO_WORK: Final = re.compile(r"\s*NO-WORK(?!\w)", re.ASCII | re.IGNORECASE)
_FAILED: Final = "FAILED:"
# Control sequences of a terminal; then any other character that is not printable.
_ORDERS: Final = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b.")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
_LINE_ENDS: Final = re.compile(r"[\r\n]+")
_SIGNALS: Final = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT",
    8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
}  # fmt: skip


class NextStatus(NamedTuple):
    status: Status
    start_at: datetime | None = None


def may_become(status: Status, then: Status, *, has_retry: bool = False) -> bool:
    """Return whether a transition is allowed; what ran only waits again for a retry."""
    if status is Status.RUNNING and then is Status.WAITING:
        return has_retry
    return then in _NEXT.get(status, frozenset())


def after_end(outcome: Status, *, attempts: int, retry: Retry | None, now: datetime) -> NextStatus:
    if outcome not in BAD or retry is None or attempts > retry.attempts:
        return NextStatus(outcome)
    # Clamp before doubling: a hundred doublings would overflow timedelta.
    doubled = retry.wait * (1 << min(max(attempts - 1, 0), 12))
    return NextStatus(Status.WAITING, now + max(retry.wait, min(doubled, RETRY_CAP)))


def broken_receipt(why: str, *, now: datetime) -> Receipt:
    words = f"the edited entry cannot be read; its last valid version stays armed: {why}"
    reason = Reason(ReasonCode.ENTRY_BROKEN, words)
    return Receipt(f"{BROKEN}{key_time(now)}", Status.SKIPPED, reason, now, now)


def followed_by(key: str) -> int | None:
    kind, _, number = key.partition(":")
    return int(number) if kind == "after" and number.isdecimal() else None


def is_planned(key: str) -> bool:
    """Return whether a key is of a time of the entry's own rule, not of a request."""
    return key.startswith(_PLANNED)


# The meaning of a run's end: its exit code comes first, then the first words of its output. A
# command may print untrusted text: it is shown on one short line, without control characters.


class EndCause(StrEnum):
    EXIT = "exit"  # its command exited
    START = "start"  # its command could not be started
    TIMEOUT = "timeout"  # its time limit
    IDLE = "idle"  # no output for too long
    CANCEL = "cancel"  # a user cancelled it
    ENGINE = "engine"  # the engine exited
    LEASE = "lease"  # the engine's lease ended


class RunFinish(Struct, frozen=True):
    """How a run ended; `last` is the end of its stderr, or of its stdout if that is empty."""

    why: EndCause
    code: int | None = None
    signal: int | None = None
    first: str = ""
    said: str = ""
    last: str = ""
    limit: timedelta | None = None


class Verdict(NamedTuple):
    status: Status
    reason: Reason


def verdict(finish: RunFinish) -> Verdict:
    """Return the status and the reason of an ended run.

    >>> verdict(RunFinish(EndCause.EXIT, code=0, first="no-work: all swept"))
    Verdict(status=<Status.NO_WORK: 'no_work'>, reason='no-work: all swept')
    >>> verdict(RunFinish(EndCause.EXIT, code=3, first="FAILED: no disk")).reason
    'no disk (exit code 3)'
    """
    match finish.why:
        case EndCause.EXIT:
            return _after_exit(finish)
        case EndCause.START:
            words = shown(f"cannot be started: {finish.said}")
            return Verdict(Status.FAILED, Reason(ReasonCode.CANNOT_START, words))
        case EndCause.TIMEOUT:
            return Verdict(Status.KILLED, timed_out(finish.limit or timedelta(), finish.last))
        case EndCause.IDLE:
            words = f"printed nothing for {format_duration(finish.limit or timedelta())}"
            words = with_output(words, finish.last)
            return Verdict(Status.KILLED, Reason(ReasonCode.IDLE_LIMIT, words))
        case EndCause.CANCEL:
            words = shown(finish.said) or "cancelled"
            return Verdict(Status.KILLED, Reason(ReasonCode.CANCELLED, words))
        case EndCause.ENGINE:
            return Verdict(Status.INTERRUPTED, ENGINE_EXITED)
        case EndCause.LEASE:
            words = "the node did not reach the database in time to renew its lease"
            return Verdict(Status.INTERRUPTED, Reason(ReasonCode.LEASE_EXPIRED, words))


def timed_out(limit: timedelta, last: str = "") -> Reason:
    words = with_output(f"exceeded the time limit of {format_duration(limit)}", last)
    return Reason(ReasonCode.TIME_LIMIT, words)


def with_output(reason: str, last: str, between: str = "; last output: ") -> str:
    words = last_words(last)
    return f"{reason}{between}{words}" if words else reason


def last_words(text: str) -> str:
    r"""Return the last lines of output as one short line.

    >>> last_words("copying\ntar: /srv: not found\n\n\x1b[31mgiving up\x1b[0m\n")
    'copying / tar: /srv: not found / giving up'
    """
    return " / ".join(last_lines(text, LINES, LAST))


def last_lines(text: str, lines: int = TAIL_LINES, most: int = TAIL) -> list[str]:
    found: list[str] = []
    for line in reversed(_LINE_ENDS.split(text)):
        plain = shown(line)
        if not any(map(str.isalnum, plain)):  # a ruler, or carets under a line
            continue
        most -= len(plain) + 3  # and the divider
        if len(found) == lines or (most < 0 and found):
            break
        found.append(plain)
    return found[::-1]


def shown(text: str, most: int = SHOWN) -> str:
    r"""Return untrusted text as one short line of printable characters.

    >>> shown("\x1b[31mdisk\x1b[0m\tfull \x00 ")
    'disk full'
    """
    # Cut first: a line may be of any length.
    plain = _UNSEEN.sub(" ", _ORDERS.sub("", text[: most * 8]))
    plain = " ".join(plain.split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _after_exit(finish: RunFinish) -> Verdict:
    if finish.signal:
        signal = f"signal {_SIGNALS.get(finish.signal, finish.signal)}"
        words = with_output(signal, finish.last, ": ")
        return Verdict(Status.FAILED, Reason(ReasonCode.SIGNAL, words))
    words = shown(finish.first)
    if finish.code != 0:
        code = f"exit code {finish.code}"
        said = words.removeprefix(_FAILED).strip() if words.startswith(_FAILED) else ""
        if said:
            return Verdict(Status.FAILED, Reason(ReasonCode.REPORTED, f"{said} ({code})"))
        words = with_output(code, finish.last, ": ")
        return Verdict(Status.FAILED, Reason(ReasonCode.EXIT_CODE, words))
    if _NO_WORK.match(finish.first):
        return Verdict(Status.NO_WORK, Reason(ReasonCode.NO_WORK, words))
    if finish.first.startswith(_FAILED):
        words = words.removeprefix(_FAILED).strip() or "the run reported FAILED without a reason"
        return Verdict(Status.FAILED, Reason(ReasonCode.REPORTED, words))
    return Verdict(Status.DONE, Reason(ReasonCode.COMPLETED, words or "exit code 0"))


def steps_in(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a workflow, and those of the workflows below it."""
    waiting: list[Any] = [record]
    while waiting:
        world = waiting.pop()
        if isinstance(world, dict):
            steps, inner = world.get("steps"), world.get("sub_workflows")
            if isinstance(steps, list):
                yield from (each for each in steps if isinstance(each, dict))
            waiting += reversed(inner) if isinstance(inner, list) else ()
