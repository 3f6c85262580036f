"""Why a receipt stands where it stands: words for people, and a code for programs.

The words may change with every version. A code never changes its meaning, is never renamed and
never used again for something else. A status and a code together say what happened.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self


class ReasonCode(StrEnum):
    """What a reason says, for programs."""

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
    APPROVED = "approved"  # the run was approved
    REJECTED = "rejected"  # the run was rejected
    APPROVAL_EXPIRED = "approval_expired"  # the run was not approved in time
    POLICY_CHANGED = "policy_changed"  # the tool policy of the workflow was changed
    AGENT_AVAILABLE = "agent_available"  # the agent is available again
    ENGINE_RESTARTED = "engine_restarted"  # the engine was restarted, and tries a held run again
    READY = "ready"  # the cause of the hold is resolved

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
    REPORTED = "reported"  # the run itself reported a failure
    STEP_FAILED = "step_failed"  # a step of the workflow failed
    CANNOT_START = "cannot_start"  # the run could not be made or started
    INTERNAL_ERROR = "internal_error"  # an unexpected error of the engine
    EDIT_FAILED = "edit_failed"  # the engine could not write a rest page or a task file
    RECORD_UNWRITABLE = "record_unwritable"  # the record of the run cannot be written
    DEADLOCK = "deadlock"  # the run needs what cannot become free before it ends
    TIME_LIMIT = "time_limit"  # the run exceeded its time limit
    MEMORY_LIMIT = "memory_limit"  # the run exceeded its memory limit, or memory ran out
    CANCELLED = "cancelled"  # the run was cancelled
    ENGINE_STOPPED = "engine_stopped"  # the engine or the node was stopped during the run
    ENGINE_EXITED = "engine_exited"  # the engine exited during the run
    LEASE_EXPIRED = "lease_expired"  # the engine did not renew its lease in time
    NODE_LOST = "node_lost"  # the node was lost during the run
    SUPERVISOR_LOST = "supervisor_lost"  # the supervisor of the run died
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


class Reason(str):
    """A reason in words that carries its code; what is made of the words alone has none.

    >>> why = Reason(ReasonCode.PAUSED, "paused by ada")
    >>> why, str(why.code)
    ('paused by ada', 'paused')
    """

    __slots__ = ("code",)

    code: str  # a ReasonCode; another word in the ledger of a newer version, "" in an older one

    def __new__(cls, code: str, words: str) -> Self:
        reason = str.__new__(cls, words)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # a word more
        return self.code, str(self)


NO_REASON: Final = Reason("", "")  # of what has not ended


def coded(words: str, code: ReasonCode) -> Reason:
    return words if isinstance(words, Reason) else Reason(code, words)
