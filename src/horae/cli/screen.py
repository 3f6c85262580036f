"""The live screen of `horae up`: now, next, running, late, and what has just happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from horae.cli.ledger import agent_row
from horae.cli.tables import safe
from horae.core.explain import length_text
from horae.core.text import moment_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from horae.app import App
    from horae.core.gate import Obstacle
    from horae.core.views import EntryLine, ReceiptLine, StatusReport


def drawn(
    app: App, stands: StatusReport, waits: Sequence[Obstacle], lines: Iterable[str]
) -> RenderableType:
    """Return how things stand, as a picture."""
    why = {each.ask.number: each.reason for each in waits}
    parts: list[RenderableType] = [
        safe(
            f"horae: {app.root}  {moment_text(stands.at, stands.zone)}  {stands.entries} armed",
            style="bold",
        )
    ]
    parts += _part("trouble", [(each,) for each in stands.problems], style="bold red")
    parts += _part("agents", [agent_row(each, stands) for each in stands.agents])
    parts += _part("running", [_running(each, stands) for each in stands.running], style="green")
    parts += _part("waiting", [_waiting(each, why) for each in stands.waiting], style="yellow")
    parts += _part("next", [_next(each, stands) for each in stands.coming])
    troubled = (*stands.late, *stands.missed, *stands.failed)
    parts += _part("needs attention", [_troubled(each) for each in troubled], style="red")
    parts += _part("what happened", [(line,) for line in lines], style="dim")
    parts += [
        Text(),
        safe(
            "Ctrl-C stops the engine; in another terminal use `horae status`, `why` or `logs`",
            "dim",
        ),
    ]
    return Group(*parts)


def _part(title: str, rows: Iterable[Sequence[str]], *, style: str = "") -> list[RenderableType]:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 2))
    for row in rows:
        table.add_row(*(safe(cell, style=style) for cell in row))
    return [Text(), safe(title, style="bold"), table] if table.row_count else []


def _running(line: ReceiptLine, stands: StatusReport) -> tuple[str, str]:
    began_at = line.filed.receipt.start_at
    return f"{line.title}  {line.filed.origin}", f"for {length_text(stands.at - began_at)}"


def _waiting(line: ReceiptLine, why: Mapping[int, str]) -> tuple[str, str]:
    reason = why.get(line.filed.number, line.filed.receipt.reason)
    return f"{line.title}  {line.filed.origin}", reason


def _next(line: EntryLine, stands: StatusReport) -> tuple[str, ...]:
    assert line.next_at is not None, "only what has a next moment comes"
    wait = line.next_at - stands.at
    return moment_text(line.next_at, line.zone), f"in {length_text(wait)}", line.title


def _troubled(line: ReceiptLine) -> tuple[str, str, str]:
    receipt = line.filed.receipt
    late = f", {length_text(line.late)} late" if line.late else ""
    when = moment_text(receipt.planned_at, line.zone)
    return when, line.title, f"{receipt.status}{late}: {receipt.reason}"
