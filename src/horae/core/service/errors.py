"""What people cannot be told or given, each with what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.core.command import Unready
    from horae.core.ports import Listed


class EntryNotFoundError(HoraeError):
    """A name that no entry goes by."""

    code = "entry_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, word: str, *, near: Sequence[str] = ()) -> None:
        self.word = word
        self.near = list(near)
        meant = " or ".join(repr(each) for each in near)
        hint = f"did you mean {meant}?" if near else "`horae list` shows the entries"
        super().__init__(
            f"no entry is called {word!r}; {hint} "
            "(name an entry by its number, :ID:, title, or file:line)"
        )


class AmbiguousEntryError(HoraeError):
    """A name that several entries go by."""

    code = "entry_ambiguous"
    exit_code = Exit.USAGE

    def __init__(self, word: str, found: Sequence[Listed]) -> None:
        self.word = word
        self.candidates = [_candidate(each) for each in found]
        shown = [f"  {each.number}  {each.mark.title}  {each.item.origin}" for each in found[:20]]
        more = [f"  and {len(found) - 20} more"] if len(found) > 20 else []
        super().__init__(
            "\n".join(
                [
                    f"{len(found)} entries are called {word!r}; name one by its number:",
                    *shown,
                    *more,
                ]
            )
        )


class EntryStateError(HoraeError):
    """An entry that is gone, not armed or at rest, and so cannot do what was asked."""

    code = "entry_state"
    exit_code = Exit.CONFLICT

    def __init__(self, found: Listed, reason: str, *, remedy: str) -> None:
        self.entry = found.number
        self.title = found.mark.title
        self.reason = reason
        super().__init__(f"{found.mark.title} (entry {found.number}): {reason}; {remedy}")


class CannotRunError(HoraeError):
    """An entry whose run could not start."""

    code = "cannot_run"

    def __init__(self, title: str, why: Unready) -> None:
        self.title = title
        self.reason = why.reason
        self.fix = why.fix
        super().__init__(f"{title} cannot run: {why}")


class ReceiptNotFoundError(HoraeError):
    """A number that no receipt has."""

    code = "receipt_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"there is no receipt {number}; `horae history` lists the receipts")


class RunNotFoundError(HoraeError):
    """A run that is asked for and is not there, or an entry that has none."""

    code = "run_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: int | str) -> None:
        self.what = what
        remedy = "`horae history` shows what ran"
        if isinstance(what, int):
            numbers = "runs and receipts are numbered separately"
            where = "`horae why ENTRY` shows the run numbers"
            super().__init__(f"there is no run {what}; {numbers}; {where}")
        else:
            super().__init__(f"{what} has no run; {remedy}")


class RunStateError(HoraeError):
    """A run that is over, or one of several, and so cannot do what was asked."""

    code = "run_state"
    exit_code = Exit.CONFLICT

    def __init__(self, title: str, reason: str, *, runs: Sequence[int] = ()) -> None:
        self.title = title
        self.reason = reason
        self.runs = list(runs)
        super().__init__(f"{title}: {reason}")


class RequestError(HoraeError):
    """A request that makes no sense."""

    code = "request"
    exit_code = Exit.USAGE

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _candidate(found: Listed) -> dict[str, object]:
    """Return what tells an entry from others of its name."""
    return {
        "entry": found.number,
        "title": found.mark.title,
        "address": found.mark.address,
        "file": found.item.origin.file,
        "line": found.item.origin.line,
    }
