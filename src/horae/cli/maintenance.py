"""`backup`, `restore`, `prune`, and the nodes of a cluster: how the ledger is kept well."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli.connection import Place, T, ask, ask_shared, command_words, refuse_loss, write
from horae.cli.moments import moment_or_length
from horae.cli.options import answer_options, data_option, option, root_of_data_option
from horae.cli.output import Output, echo, form_options, print_answer, print_rows, print_table
from horae.client import Client
from horae.config import load, secrets_of
from horae.core.actor import acting, user_name
from horae.core.clock import SystemClock
from horae.core.ports import LedgerDamagedError, LedgerWriteError
from horae.core.text import moment_text, size_text
from horae.errors import Exit, HoraeError
from horae.store import database
from horae.store.sqlite import restore as restore_ledger

if TYPE_CHECKING:
    from horae.core.lease import Membership
    from horae.store.moving import Moved
    from horae.store.postgres import PostgresLedger

_SQLITE: Final = b"SQLite format 3\0"  # how each of its files begins
_LOOK: Final = 0.5  # seconds between two looks at a node that drains
_YEARS: Final = re.compile(r"([1-9]\d{0,2})y", re.ASCII)


class BackupError(HoraeError, code="backup", exit_code=Exit.CONFLICT):
    def __init__(self, path: str, reason: str, *, remedy: str, **of_kind: Any) -> None:
        super().__init__(f"{path}: {reason}; {remedy}", path=path, reason=reason, **of_kind)


_NO_BACKUP: Final[dict[str, Any]] = {"code": "no_backup", "exit_code": Exit.NOT_FOUND}


@click.command()
@click.argument("file", metavar="[FILE|DIR]", required=False)
@answer_options
def backup(file: str | None, *, place: Place, output: Output) -> None:
    """Write a verified copy of the ledger.

    A running engine is not interrupted. In DIR, which must exist, the copy is named after the
    current time. The default is backups/ in the data directory.
    """
    refuse_loss(place)
    target = home = place.directory / database.BACKUPS if file is None else Path(file)
    if file is None:
        database.prepare_folder(home)
    if home.is_dir():
        stem = f"ledger-{SystemClock().now():%Y%m%dT%H%M%SZ}"
        suffixes = chain([""], (f"-{number}" for number in count(2)))
        names = (home / f"{stem}{suffix}.db" for suffix in suffixes)
        target = next(each for each in names if not each.exists())
    if target.exists() or target.is_symlink():
        remedy = "name another file, or give no name"
        raise BackupError(str(target), "the file exists", remedy=remedy)
    folder = target if file is not None and file.endswith("/") else target.parent
    if not folder.is_dir():
        remedy = f"create {folder} first"
        raise BackupError(str(target), "the directory does not exist", remedy=remedy, **_NO_BACKUP)
    ask(place, lambda ledger: ledger.backup(target))
    size = target.stat().st_size
    said = f"{target}: {size_text(size)}, verified"
    print_answer(output, {"backup": str(target), "bytes": size}, said)


@click.command()
@click.argument("file", metavar="FILE")
@answer_options
def restore(file: str, *, place: Place, output: Output) -> None:
    """Restore the ledger from a backup.

    Scheduled times that have passed are not run. The previous ledger is kept beside the
    restored one. The engine must be stopped.
    """
    home, path = place.directory / database.BACKUPS, Path(file)
    backups = backups_in(home)
    more = f", and {len(backups) - 3} more in {home}" if len(backups) > 3 else ""
    are = "the newest backups are" if len(backups) > 1 else "there is one backup:"
    newest = f"{are} {', '.join(map(str, backups[:3]))}{more}"
    remedy = newest if backups else f"there are no backups in {home}"
    try:
        with path.open("rb") as opened_file:
            head = opened_file.read(len(_SQLITE))
    except OSError as error:  # a directory, or a file of another user
        there = f"cannot be read ({error.strerror})"
        reason = there if path.exists() else "the file does not exist"
        raise BackupError(str(path), reason, remedy=remedy, **_NO_BACKUP) from None
    if head and head != _SQLITE:
        reason = "not a backup: the file is not an SQLite database"
        raise LedgerDamagedError(str(path), reason, remedy=remedy)
    try:
        _restore(output, place, path)
    except LedgerDamagedError as error:
        if error.place != str(path):
            raise
        reason = error.reason.replace("the ledger is damaged", "the backup is damaged")
        raise LedgerDamagedError(file, reason, remedy=remedy) from None


def _restore(output: Output, place: Place, file: Path) -> None:
    now = SystemClock().now()
    with acting(f"cli:{user_name(os.getuid())}"):  # the run that it is in may be of no ledger
        old = restore_ledger(place.directory, file, now=now, command=command_words())
    aside, before = str(old) if old.exists() else None, "there was no ledger before"
    if aside:
        before = f"the previous ledger is {aside}"
    elif parts := sorted(map(str, old.parent.glob(f"{old.name}-*"))):
        before = f"the database of the previous ledger was missing; kept: {', '.join(parts)}"
    passed = "scheduled times that have passed do not run"
    text = f"restored {file} as the ledger of {place.directory}; {passed}; {before}"
    missing = missing_secrets(place)
    lines = (text, *(f"missing: {each}" for each in missing))
    said = {"restored": str(file), "aside": aside, "missing_secrets": missing}
    print_answer(output, said, "\n".join(lines))


def restore_newest(output: Output, place: Place) -> None:
    home = place.directory / database.BACKUPS
    damaged: list[str] = []
    for file in backups_in(home):
        problem = damage_of(file)
        if problem is None:
            _restore(output, place, file)
            return
        damaged.append(str(file))
        output.say(problem)
    why = f": none of {len(damaged)} is intact" if damaged else ""
    remedy = "`horae restore FILE`, or start a new ledger: `horae up --fresh-ledger`"
    said = f"{home}: no backup to restore{why}; name another file: {remedy}"
    raise HoraeError(said, **_NO_BACKUP, directory=str(home), damaged=damaged)


def missing_secrets(place: Place) -> list[str]:
    """Return which secrets cannot be read that triggers and agents of the ledger need."""
    if place.store is not None or not place.path.exists():
        return []
    secrets = secrets_of(place.config, may_call=False)
    with (
        database.sqlite_errors(str(place.path)),
        closing(database.open_reader(place.path, patience=database.PATIENCE)) as connection,
    ):
        named = list(database.named_in(connection))
    found = ((whose, secrets.why_not([text])) for whose, text in named)
    return [f"{whose}: {error}" for whose, error in found if error is not None]


def backups_in(home: Path) -> list[Path]:
    found = [each for each in home.glob("*.db") if each.is_file()] if home.is_dir() else []
    return sorted(found, key=lambda each: (each.stat().st_mtime_ns, each.name), reverse=True)


def damage_of(path: Path) -> HoraeError | None:
    try:
        database.verify(path)
    except HoraeError as error:
        return error
    return None


@click.command()
@option("--before TIME", "A time, or an age such as 90d or 1y.", default="1y", show_default=True)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@answer_options
def prune(before: str, *, dry_run: bool, place: Place, output: Output) -> None:
    """Remove the details of old receipts.

    Old receipts are summarised as ranges, and their runs, events and copies of the plan text are
    removed. Receipts that have not ended, or whose result has not been processed yet, are kept.
    """
    now = SystemClock().now()
    if (moment := _age(before, place, now=now)) > now:
        raise click.UsageError(f"{before} is in the future; name a past time.")
    pruned = write(place, lambda service: service.prune(before=moment, dry_run=dry_run))
    counts = {name: getattr(pruned, name) for name in ("receipts", "runs", "events", "texts")}
    said = {"before": moment.isoformat(timespec="seconds"), "dry_run": dry_run, **counts}
    amounts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    amounts = amounts.replace("texts", "copies of plan text")
    verb = "would remove" if dry_run else "removed"
    when = moment_text(moment, place.zone.key)
    print_answer(output, said, f"{verb} details from before {when}: {amounts}")


def _age(text: str, place: Place, *, now: datetime) -> datetime:
    if years := _YEARS.fullmatch(text.strip()):
        # 29 February has no such day in most years.
        day = 28 if (now.month, now.day) == (2, 29) else now.day
        return now.replace(year=max(1, now.year - int(years[1])), day=day)
    return moment_or_length(text, place.zone, now, such_as="90d", is_ago=True)


# The nodes of a cluster


@click.command()
@root_of_data_option
@form_options
def nodes(*, root: str, output: Output) -> None:
    """List the nodes of a cluster.

    Show which node leads, and for each node its runs, its start and the end of its lease.
    """
    try:
        rows = _ask_shared(root, lambda ledger: ledger.nodes())
    except LedgerWriteError as error:
        client = Client(load(root).data)
        if not client.answers():
            raise
        echo(f"horae: {error}; this is the last known state", err=True)
        rows = client.nodes().nodes
    cells = []
    for row in rows:
        role = ", leads" if row.leads else "" if row.may_lead else ", never leads"
        facts = (f"{row.runs} of {row.slots}", " ".join(row.labels), row.address, row.version)
        times = (at.replace("+00:00", "Z") for at in (row.since, row.seen_at, row.lease_until))
        cells.append((row.node, f"{row.state}{role}", *facts, *times))
    names = ("node", "state", "runs", "labels", "address", "version", "since", "seen", "lease")
    print_rows(output, rows, lambda: print_table(names, cells, empty="no node has joined yet"))


@click.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Assign runs to the node again.")
@click.option("--wait", is_flag=True, help="Return when the node has no runs and does not lead.")
@root_of_data_option
@form_options
def drain(name: str, *, off: bool, wait: bool, root: str, output: Output) -> None:
    """Stop assigning runs to a node.

    Its current runs continue; its agents move to other nodes. If the node leads and another one
    can, that one leads. With --wait, the command shows what it waits for.
    """
    if off and wait:
        raise click.UsageError("--wait cannot be used with --off.")

    async def change(ledger: PostgresLedger) -> Membership | None:
        since = await ledger.leases.now()
        if not await ledger.leases.drain(name, not off):
            known = [each.member.name for each in await ledger.leases.members()]
            said = f"there is no node called {name!r}; nodes: {', '.join(known) or 'none'}"
            own: dict[str, Any] = {"code": "no_node", "exit_code": Exit.NOT_FOUND}
            raise HoraeError(said, **own, name=name, known=known)
        return await _drained(ledger, name, since, says=output.is_text) if wait else None

    node, said = _ask_shared(root, change), {"node": name, "draining": not off}
    text = f"{name} gets {'runs again' if off else 'no more runs'}"
    if node is not None:
        leads = "" if node.term is None else "; it still leads, because no other node can"
        text, said = f"{name} has no runs{leads}", said | {"leads": node.term is not None}
    print_answer(output, said, text)


async def _drained(ledger: PostgresLedger, name: str, since: datetime, *, says: bool) -> Membership:
    """Return a node that drains when it has ended its runs and handed the lead over."""
    told, is_idle = "", False
    while True:
        members = await ledger.leases.members()
        node = next(each for each in members if each.member.name == name)
        must_hand_over = node.term is not None and any(each.can_lead for each in members)
        # A run that it claimed before it heard of the drain is in the ledger a moment later.
        was_idle, is_idle = is_idle, node.seen_at > since and not node.runs and not must_hand_over
        if not node.is_alive or (was_idle and is_idle):
            return node
        text = f"{name} to hand the lead over" if must_hand_over else ""
        if node.runs:
            text = f"{node.runs} run{'s' * (node.runs != 1)} on {name}"
        if says and text not in {told, ""}:
            echo(f"horae: waiting for {text}", err=True)
        told = text
        await asyncio.sleep(_LOOK)


@click.command()
@root_of_data_option
@form_options
def restored(*, root: str, output: Output) -> None:
    """Mark the database as restored from a backup.

    Scheduled times since the backup are skipped, and receipts that were waiting or running in it
    are ended. Numbers that were used since the backup are not used again. Stop every node first.
    """
    from horae.store.moving import go_on_restored

    async def change(ledger: PostgresLedger) -> None:
        if up := [each.member.name for each in await ledger.leases.members() if each.is_alive]:
            remedy = "stop every node, and try again when their leases have ended"
            said = f"nodes are up: {', '.join(up)}; {remedy}"
            raise HoraeError(said, code="nodes_up", exit_code=Exit.CONFLICT, names=up)
        await go_on_restored(ledger, now=await ledger.leases.now())

    _ask_shared(root, change)
    print_answer(output, {"restored": True}, "scheduled times that have passed do not run")


def _ask_shared(root: str, work: Callable[[PostgresLedger], Awaitable[T]]) -> T:
    return ask_shared(_url(load(root).store, root), work)


def _url(store: str | None, root: str) -> str:
    if store is None:
        where = 'set `store = "postgresql://…"` in horae.toml, or HORAE_STORE'
        said = f"no database is set; {where}, to the database that the nodes share"
        raise HoraeError(said, code="no_store", exit_code=Exit.USAGE, root=root)
    return store


@click.command()
@click.option("--to", "target", metavar="URL", help="The database; default: the setting `store`.")
@data_option
@root_of_data_option
@form_options
def migrate(*, target: str | None, data: str | None, root: str, output: Output) -> None:
    """Move the local ledger to PostgreSQL.

    The whole history is copied and verified. The engine must be stopped. The SQLite ledger is
    only read, and is kept. With a local ledger, the database must not contain one yet. Without a
    local ledger, the tables are created, or the schema of the ledger in the database is upgraded.
    """
    from horae.store.carrier import prepare
    from horae.store.moving import move

    settings = load(root, flags={"data": data})
    url = _url(target or settings.store, root)

    async def moving(ledger: PostgresLedger) -> list[Moved]:
        await prepare(ledger.address)
        if not (settings.data / database.DATABASE).exists():
            return []
        now = SystemClock().now()
        return await move(settings.data, ledger, now=now, command=command_words())

    moved = ask_shared(url, moving)
    rows = [{"table": each.table, "rows": each.rows, "digest": each.digest} for each in moved]
    end = f"the tables are up to date; there is no ledger in {settings.data} to move"
    if moved:
        end = f"the ledger of {settings.data} is in the database now; set `store` to use it"
    lines = [
        f"{each.table:<12} {each.rows:>9,} {'row' if each.rows == 1 else 'rows'}, equal"
        f" ({each.digest[:12]})"
        for each in moved
    ]
    print_rows(output, rows, lambda: echo("\n".join([*lines, end])))
