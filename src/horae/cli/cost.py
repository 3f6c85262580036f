"""`cost` and `next --cost`: what runs spent, and what those to come are expected to cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from horae.cli import options
from horae.cli.connection import Place, read_any
from horae.cli.output import Output, echo, print_answer, print_table
from horae.core.budget import DOLLAR, CostGroup, Unit, amount_text
from horae.core.text import moment_text

if TYPE_CHECKING:
    from horae.core.views import CostReport, ForecastReport

_BAR: Final = 24  # characters of the longest bar


@click.command()
@options.choice_option("--by", "What one row is about.", CostGroup, default="entry")
@options.number_option("--days", default=7, most=366, text="How many days, with today.")
@options.answer_options
def cost(*, by: str, days: int, place: Place, output: Output) -> None:
    """Show what runs cost, and where budgets stand.

    The cost is what agent programs report, else the list price of their tokens.
    """
    found = read_any(place, lambda service: service.costs(by=by, days=days))
    print_answer(output, found, lambda: _print_costs(found, by))


def _print_costs(found: CostReport, by: str) -> None:
    most = max([row.cost for row in found.rows] + [0.0])
    rows = []
    for row in (*found.rows, *([found.total] if len(found.rows) > 1 else [])):
        bar = "" if row is found.total or not most else "█" * round(row.cost / most * _BAR)
        silent = f"{row.silent} without a cost" if row.silent else ""
        cells = (row.name, _dollars(row.cost), _tokens(row.tokens), str(row.runs), bar, silent)
        rows.append(cells)
    since = moment_text(found.since, found.zone)
    empty = f"no run since {since} reported a cost or tokens"
    print_table((by, "cost", "tokens", "runs", "", ""), rows, empty=empty)
    if found.budgets:
        echo("\nbudgets")
        stands = []
        for each in found.budgets:
            title = f"{each.entry}: " if each.entry else ""
            until = moment_text(each.until, found.zone)
            live = f", {each.expected} expected of runs in progress" if each.expected else ""
            stands.append((f"{title}{each.budget}", f"{each.spent} used{live}", until))
        print_table(("budget", "in this period", "next period"), stands)


def show_forecast(root: str, output: Output, *, days: int) -> None:
    place = Place.of(root=root, data=None)
    found = read_any(place, lambda service: service.forecast(days=days))
    print_answer(output, found, lambda: _print_forecast(found, days))


def _print_forecast(found: ForecastReport, days: int) -> None:
    rows = [
        (row.title, str(row.runs), _dollars(row.each or 0.0), _dollars(row.cost))
        for row in found.rows
    ]
    empty = "no run of a scheduled entry has reported a cost"
    print_table(("entry", "runs", "each", f"next {days} days"), rows, empty=empty)
    if len(rows) > 1:
        echo(f"total {_dollars(found.cost)}")


def _dollars(amount: float) -> str:
    return amount_text(round(amount * DOLLAR))


def _tokens(count: int) -> str:
    return amount_text(count, Unit.TOKENS).partition(" ")[0]
