"""What triggers cannot do for somebody, and how the API says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.actor import actor_words
from horae.core.prompt import AgentUnavailableError
from horae.errors import Exit, HoraeError
from horae.sources.triggers.rules import TriggerError

if TYPE_CHECKING:
    from collections.abc import Sequence


# How a message calls what a request calls otherwise, and which command lists them.
_LISTED: Final = {
    "workflow": ("trigger", "; `horae trigger list` lists the triggers"),
    "approval": (
        "pending approval of receipt",
        "; `horae approval list` lists the pending approvals",
    ),
}


class TriggerNotFoundError(HoraeError):
    """A trigger, an agent or an approval that is not there."""

    code = "trigger_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: str, word: str) -> None:
        self.what = what
        self.word = word
        name, hint = _LISTED.get(what, (what, ""))
        super().__init__(f"there is no {name} {word!r}{hint}")


class TriggerConflictError(HoraeError):
    """A request that does not go together with what is there."""

    code = "trigger_conflict"
    exit_code = Exit.CONFLICT

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ApproverError(HoraeError):
    """An agent that wants to approve or deny a run."""

    code = "approver"
    exit_code = Exit.UNAUTHORISED

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor_words(actor)} cannot approve or reject a run; only a user can")


class UnsignedError(HoraeError):
    """A message that is not signed for a webhook; who sends it is not told what is wrong."""

    code = "unsigned"
    exit_code = Exit.UNAUTHORISED

    def __init__(self) -> None:
        super().__init__("unauthorized: there is no such webhook, or the signature does not match")


class PollError(HoraeError):
    """A program that was asked what there is, and failed."""

    code = "poll_failed"
    exit_code = Exit.TEMPORARY

    def __init__(self, program: str, exit_code: int, said: str) -> None:
        self.program = program
        self.said = said
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        told = "; ".join(lines[:2])[:300] or "no error output"
        super().__init__(f"{program} exited with {exit_code}: {told}")


class FilesError(HoraeError):
    """Files that cannot be applied; nothing was changed."""

    code = "agentd_files"
    exit_code = Exit.FINDINGS

    def __init__(self, found: Sequence[str]) -> None:
        self.found = list(found)
        count = f"{len(found)} problem{'s' * (len(found) != 1)}"
        super().__init__("\n".join([*found, f"{count}; nothing was changed"]))


_PREFIXES: Final = {
    TriggerError.code: "invalid input",
    TriggerNotFoundError.code: "not found",
    TriggerConflictError.code: "conflict",
    AgentUnavailableError.code: "service unavailable",
}


def api_words(error: HoraeError) -> str:
    """Return an error in the words of agentd, which begin with the kind of the error."""
    prefix = _PREFIXES.get(error.code)
    return str(error) if prefix is None else f"{prefix}: {error}"


def refusal(error: HoraeError) -> tuple[int, dict[str, str]]:
    """Return the status and the body with which the API says an error."""
    match error:
        case TriggerNotFoundError():
            return 404, {"error": "not found"}
        case UnsignedError():
            return 401, {"error": str(error)}
        case TriggerConflictError():
            return 409, {"error": api_words(error)}
        case AgentUnavailableError():
            return 503, {"error": api_words(error)}
        case TriggerError():
            return 400, {"error": api_words(error)}
    known = {Exit.USAGE: 400, Exit.UNAUTHORISED: 403, Exit.NOT_FOUND: 404}
    known |= {Exit.CONFLICT: 409, Exit.TEMPORARY: 503}
    return known.get(Exit(error.exit_code), 500), {"error": str(error)}
