"""`horae up`, as it is or made to die over a run, at a step that chance would seldom hit.

    life.py UP-ARGUMENTS...
    life.py --die STEP COUNT NOTE UP-ARGUMENTS...

It kills itself the COUNT-th time it comes to STEP, and writes into NOTE over which receipt or run.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.cli.run import run
from horae.cli.up import up
from horae.core.launch import Launch
from horae.core.receipt import Status
from horae.process.processes import LiveRun
from horae.sources.plans.runner import CommandRunner
from horae.store.ledger import Transaction
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(NamedTuple):
    """A call in which to die, before or after its work is done, and whom it is about."""

    owner: Any
    name: str
    is_before: bool
    about: Callable[[tuple[Any, ...]], str]


def receipt(given: tuple[Any, ...]) -> str:
    """Return which receipt the ledger was asked about first."""
    return f"receipt {given[1][0].number}"


def run_(given: tuple[Any, ...]) -> str:
    """Return which run the ledger was asked about first."""
    return f"run {given[1][0][0]}"


def moved(status: Status) -> Callable[[tuple[Any, ...]], str]:
    """Return what says which receipt is moved first, if they are moved so."""
    return lambda given: f"receipt {given[1][0]}" if given[1] and given[2] is status else ""


def ended(given: tuple[Any, ...]) -> str:
    """Return which run is ended first; nothing if there is none."""
    return next((f"run {end.run}" for end, _ in given[1]), "")


def settled(given: tuple[Any, ...]) -> str:
    """Return which receipt comes last among those to be settled; nothing if there is none."""
    numbers = list(given[1])
    return f"receipt {numbers[-1]}" if numbers else ""


# In the order of a run's life. Until "after go" nothing can have happened.
STEPS: Final = {
    "before decided": Step(SqliteLedger, "decide", True, lambda _: "nobody"),
    "after decided": Step(SqliteLedger, "decide", False, lambda _: "nobody"),
    "before starting": Step(SqliteLedger, "start_many", True, receipt),
    "inside starting": Step(Transaction, "_move_all", False, moved(Status.STARTING)),
    "after starting": Step(SqliteLedger, "start_many", False, receipt),
    "after made": Step(CommandRunner, "hold", False, lambda given: f"run {given[1].run.number}"),
    "inside running": Step(Transaction, "_move_all", False, moved(Status.RUNNING)),
    "after running": Step(SqliteLedger, "running_many", False, run_),
    "after go": Step(LiveRun, "go", False, lambda given: f"run {given[0].spec.run}"),
    "before end": Step(SqliteLedger, "end_many", True, run_),
    "inside end": Step(Transaction, "_end_all", False, ended),
    "after end": Step(SqliteLedger, "end_many", False, run_),
    "before settled": Step(SqliteLedger, "settle", True, settled),
    "after settled": Step(SqliteLedger, "settle", False, settled),
    "before taken over": Step(Launch, "_take_over", True, lambda g: f"receipt {g[1].number}"),
    "after taken over": Step(Launch, "_take_over", False, lambda g: f"receipt {g[1].number}"),
}


def aim(step: Step, *, count: int, note: str) -> None:
    """Let this process die the *count*-th time it comes to a step."""
    original = getattr(step.owner, step.name)
    left = count

    def passes(given: tuple[Any, ...]) -> None:
        nonlocal left
        about = step.about(given)
        left -= bool(about)
        if left == 0 and about:
            descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, about.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(original)
    async def waiting(*given: Any, **named: Any) -> Any:
        if step.is_before:
            passes(given)
        result = await original(*given, **named)
        if not step.is_before:
            passes(given)
        return result

    @wraps(original)
    def at_once(*given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        passes(given)
        return result

    setattr(step.owner, step.name, waiting if iscoroutinefunction(original) else at_once)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[0] == "--die":
        aim(STEPS[arguments[1]], count=int(arguments[2]), note=arguments[3])
        arguments = arguments[4:]
    sys.exit(run(up, name="horae", args=arguments))
