"""What pages show that stands in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from horae.core.ports import Listed
    from horae.sources.crew.lifecycle import Lifecycle


class PageError(HoraeError):
    """A page that is not there."""

    code = "page"
    exit_code = Exit.NOT_FOUND

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


async def _no_day(_: Listed) -> Lifecycle | None:
    return None


async def _no_plans() -> Sequence[str]:
    return ()


async def _no_plan(file: str) -> str:
    raise PageError(f"{file} cannot be read")


@dataclass(frozen=True, slots=True)
class Papers:
    """What pages show that stands in files; whoever wires the house hands it in.

    `plans` names the plans beneath the root, `plan` gives the text of one of them, and `day`
    the lifecycle of an agent, if it has one.
    """

    plans: Callable[[], Awaitable[Sequence[str]]] = _no_plans
    plan: Callable[[str], Awaitable[str]] = _no_plan
    day: Callable[[Listed], Awaitable[Lifecycle | None]] = _no_day
