"""`nodes`, `drain` and `store`: the machines that share a ledger, and the ledger they share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import click

from horae.cli.options import data_option, root_option
from horae.cli.output import Output, echo, form_options, print_answer, print_rows
from horae.cluster.lease import node_data
from horae.config import load
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from horae.store.moving import Moved
    from horae.store.postgres import PostgresLedger

T = TypeVar("T")


class NoStoreError(HoraeError):
    """A command about a cluster where no database is named."""

    code = "no_store"
    exit_code = Exit.USAGE

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(
            f'{root}: no database is set; set `store = "postgresql://…"` in horae.toml, or'
            " HORAE_STORE, to the database that the nodes share"
        )


class NoNodeError(HoraeError):
    """A machine that never joined."""

    code = "no_node"
    exit_code = Exit.NOT_FOUND

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
        there = ", ".join(known) or "none"
        super().__init__(f"there is no node called {name!r}; nodes: {there}")


@click.command()
@root_option
@form_options
def nodes(*, root: str, form: str | None) -> int:
    """List the nodes of a cluster.

    Show which node leads, when each was last seen, and what it runs.
    """

    async def look(ledger: PostgresLedger) -> list[dict[str, Any]]:
        leader = await ledger.leases.leader()
        runs: dict[str, int] = {}
        for _, run in await ledger.open_runs():
            runs[run.member] = runs.get(run.member, 0) + 1
        members = await ledger.leases.members()
        return [node_data(each, leader, runs.get(each.member.name, 0)) for each in members]

    output = Output.of(form)
    rows = _ask(root, look)
    print_rows(output, rows, lambda: _print(rows))
    return Exit.OK


@click.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Assign runs to the node again.")
@root_option
@form_options
def drain(name: str, *, off: bool, root: str, form: str | None) -> int:
    """Stop assigning runs to a node.

    Its current runs continue; its agents move to other nodes.
    """

    async def ask(ledger: PostgresLedger) -> None:
        if not await ledger.leases.drain(name, not off):
            known = [each.member.name for each in await ledger.leases.members()]
            raise NoNodeError(name, known)

    _ask(root, ask)
    output = Output.of(form)
    said = {"node": name, "draining": not off}
    text = f"{name} is given {'runs again' if off else 'nothing more to run'}"
    print_answer(output, said, text)
    return Exit.OK


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from horae.cli.tables import console, safe

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "state", "runs", "labels", "address", "version", "seen"):
        table.add_column(name, overflow="fold")
    for row in rows:
        state = f"{row['state']}, leads" if row["leads"] else row["state"]
        runs = f"{row['runs']} of {row['slots']}"
        words = (row["node"], state, runs, " ".join(row["labels"]))
        table.add_row(*map(safe, (*words, row["address"], row["version"], row["seen_at"])))
    console().print(table if rows else safe("no node has joined yet", style="dim"))


def _ask(root: str, work: Callable[[PostgresLedger], Awaitable[T]]) -> T:
    """Return what a question to the shared ledger comes to."""
    from horae.store.postgres import PostgresLedger

    store = load(root).store
    if store is None:
        raise NoStoreError(root)

    async def asking() -> T:
        ledger = await PostgresLedger.open(store)
        try:
            return await work(ledger)
        finally:
            await ledger.close()

    return asyncio.run(asking())


@click.command()
@click.option("--to", "target", metavar="URL", help="The database; default: the setting `store`.")
@data_option
@root_option
@form_options
def migrate(*, target: str | None, data: str | None, root: str, form: str | None) -> int:
    """Move the local ledger to PostgreSQL.

    The whole history is copied and verified. The engine must be stopped. The database must not
    contain a ledger; its tables are created. The SQLite ledger is only read, and is kept.
    Without one, only the tables are created.
    """
    from horae.core.clock import SystemClock
    from horae.store.carrier import prepare
    from horae.store.database import DATABASE
    from horae.store.moving import move
    from horae.store.postgres import PostgresLedger

    settings = load(root, flags={"data": data})
    url = target or settings.store
    if url is None:
        raise NoStoreError(root)
    output = Output.of(form)

    async def moving() -> list[Moved]:
        ledger = await PostgresLedger.open(url)
        try:
            await prepare(ledger.address)
            if not (settings.data / DATABASE).exists():
                return []
            return await move(settings.data, ledger, now=SystemClock().now())
        finally:
            await ledger.close()

    moved = asyncio.run(moving())
    rows = [{"table": each.table, "rows": each.rows, "digest": each.digest} for each in moved]
    print_rows(output, rows, lambda: _print_moved(moved, str(settings.data)))
    return Exit.OK


def _print_moved(moved: list[Moved], data: str) -> None:
    for each in moved:
        echo(f"{each.table:<12} {each.rows:>9,} rows, equal ({each.digest[:12]})")
    if moved:
        echo(f"the ledger of {data} is in the database now; set `store` to use it")
    else:
        echo(f"the tables are created; there is no ledger in {data} to move")
