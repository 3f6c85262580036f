"""`token` and `open`: who may come in on the port, and a link for the browser."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from horae.cli.client import EngineUnreachableError
from horae.cli.connection import (
    CommandClock,
    NoLedgerError,
    Place,
    engine_at,
    reader_of,
    refuse_loss,
    write_with,
)
from horae.cli.group import SharedGroup
from horae.cli.options import place_options
from horae.cli.output import Form, Output, echo, form_options, print_answer, print_rows
from horae.core.access import end_sessions
from horae.core.scope import OPERATOR, check_token_name, parse_scopes, scope_words
from horae.errors import Exit, HoraeError
from horae.store.access import BookTokens
from horae.store.sessions import BookSessions
from horae.web.keys import (
    TokenFileError,
    add_token,
    all_tokens,
    new_token,
    read_token,
    revoke_token,
    write_token,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from horae.store.ledger import BookLedger


@click.group(cls=SharedGroup)
def token() -> None:
    """Manage access tokens and sessions.

    A token gives a program access to the HTTP API of the engine. The scopes of a token: `read`
    shows everything, `run` starts and stops runs, `edit` changes definitions, `admin` allows
    everything. The token of the operator is in the data directory and allows everything.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="What it allows: read, run, edit or admin; more than once, or with commas.",
)
@place_options
@form_options
def add(name: str, *, scopes: Sequence[str], root: str, data: str | None, form: str | None) -> int:
    """Create a token and print it.

    The token is shown only once.
    """
    check_token_name(name)
    wanted, output, place = parse_scopes(scopes), Output.of(form), _place(root, data)
    words = ",".join(scope_words(wanted))

    async def alone(ledger: BookLedger) -> dict[str, Any]:

        made, said = await add_token(BookTokens(ledger), name, wanted, now=CommandClock().now())
        return {**made.data(), "token": said}

    made = _write(place, ("tokens",), {"name": name, "scopes": words}, alone)
    print_answer(output, made, str(made["token"]))
    if output.form is Form.TABLE:
        echo("horae: save this token now; only its digest is stored", err=True)
    return Exit.OK


@token.command("list")
@place_options
@form_options
def list_(*, root: str, data: str | None, form: str | None) -> int:
    """List the tokens, their scopes and their last use."""
    place, output = _place(root, data), Output.of(form)

    async def looking() -> list[dict[str, Any]]:

        async with reader_of(place) as ledger:
            found = await all_tokens(place.directory, BookTokens(ledger))
        return [each.data() for each in found]

    rows = asyncio.run(looking())
    print_rows(output, rows, lambda: _print(rows))
    return Exit.OK


@token.command()
@click.argument("name")
@place_options
@form_options
def revoke(name: str, *, root: str, data: str | None, form: str | None) -> int:
    """Revoke a token.

    Open connections with the token are closed at once.
    """
    place, output = _place(root, data), Output.of(form)

    async def alone(ledger: BookLedger) -> dict[str, Any]:

        await revoke_token(BookTokens(ledger), name, now=CommandClock().now())
        return {"revoked": name}

    done = _write(place, ("tokens", name, "revoke"), {}, alone)
    print_answer(output, done, f"token {name} is revoked")
    return Exit.OK


@token.command()
@place_options
@form_options
def sessions(*, root: str, data: str | None, form: str | None) -> int:
    """List the browser sessions.

    A session lasts 12 hours since its last use and allows what its token allows.
    """
    place, output = _place(root, data), Output.of(form)

    async def looking() -> list[dict[str, Any]]:

        async with reader_of(place) as ledger:
            found = await BookSessions(ledger).all(now=CommandClock().now())
        return [each.data() for each in found]

    rows = asyncio.run(looking())
    print_rows(output, rows, lambda: _print_sessions(rows))
    return Exit.OK


@token.command("end-session")
@click.argument("session", metavar="ID|all")
@place_options
@form_options
def end_session(session: str, *, root: str, data: str | None, form: str | None) -> int:
    """End a browser session, or all of them.

    Open connections of the session are closed at once.
    """
    place, output = _place(root, data), Output.of(form)
    done = _end(place, session)
    count = len(done["ended"])
    print_answer(output, done, f"{count} session{'' if count == 1 else 's'} ended")
    return Exit.OK


@token.command()
@place_options
def new(*, root: str, data: str | None) -> int:
    """Replace the token of the operator.

    Every session, link and calendar address becomes invalid. A running engine uses the new
    token at once. Tokens with a name are kept.
    """
    place = _place(root, data)
    far = engine_at(place)
    if far is not None:
        far.post("token")
    else:
        made = new_token()
        if place.store is not None:
            asyncio.run(_share(place.store, made))
        write_token(place.directory, made)
        with suppress(HoraeError):  # what is left of them in a ledger lets nobody in any more
            _end(place, "all")
    echo("horae: the token is replaced, and the old one is no longer valid")
    return Exit.OK


@token.command()
@place_options
def show(*, root: str, data: str | None) -> int:
    """Print the token of the operator.

    Send it in the header `Authorization: Bearer`.
    """
    place = _place(root, data)
    found = read_token(place.directory)
    if found is None:
        raise TokenFileError(str(place.directory), "there is no token yet")
    echo(found)
    return Exit.OK


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@click.option("--calendar", is_flag=True, help="Print the address for calendar programs instead.")
@place_options
def open_(*, only_print: bool, calendar: bool, root: str, data: str | None) -> int:
    """Open the page of the running engine.

    The link logs the browser in and can be used once. The link is printed too; on a terminal a
    browser is opened. The address of the calendar shows all scheduled times to anyone who
    has it; `horae token new` replaces it.
    """
    place = _place(root, data)
    far = engine_at(place)
    if far is None:
        reason = "no engine is running; start it with `horae up`"
        raise EngineUnreachableError(str(place.directory), reason)
    if calendar:
        said = far.get("calendar")
        echo(said["url"] or said["path"])
        return Exit.OK
    link = far.post("login")["url"]
    echo(link)
    if not only_print and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(link)
    return Exit.OK


def _place(root: str, data: str | None) -> Place:
    """Return the data directory that is meant, or raise an error if there is none."""
    place = Place.of(root=root, data=data)
    if not place.directory.is_dir():
        raise NoLedgerError(str(place.directory))
    return place


def _write(
    place: Place,
    path: tuple[str, ...],
    said: Mapping[str, object],
    alone: Callable[[BookLedger], Awaitable[dict[str, Any]]],
) -> dict[str, Any]:
    """Change the tokens: ask the engine that runs, else do it alone."""
    refuse_loss(place)
    return write_with(place, lambda far: far.post(*path, body=said), alone)


def _end(place: Place, session: str) -> dict[str, Any]:
    async def alone(ledger: BookLedger) -> dict[str, Any]:
        ended = await end_sessions(BookSessions(ledger), session, now=CommandClock().now())
        return {"ended": [each.id for each in ended]}

    return _write(place, ("sessions", session, "end"), {}, alone)


async def _share(store: str, made: str) -> None:
    """Let a token be the operator's on all machines that share a ledger."""
    from horae.store.postgres import PostgresLedger

    ledger = await PostgresLedger.open(store)
    try:
        await ledger.share_token(made, now=CommandClock().now())
    finally:
        await ledger.close()


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from horae.cli.tables import console, safe

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "scopes", "created", "last used"):
        table.add_column(name, overflow="fold")
    for row in rows:
        unused = "not recorded" if row["name"] == OPERATOR else "never"
        used = _seconds(row["used_at"]) if row["used_at"] else unused
        words = (row["name"], " ".join(row["scopes"]), _seconds(row["created_at"]), used)
        table.add_row(*map(safe, words))
    console().print(table)


def _print_sessions(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from horae.cli.tables import console, safe

    if not rows:
        echo("no browser is logged in")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("session", "token", "since", "last used", "ends", "browser"):
        table.add_column(name, overflow="fold", no_wrap=name == "session")
    for row in rows:
        times = (_seconds(row[name]) for name in ("created_at", "used_at", "expires_at"))
        table.add_row(*map(safe, (row["id"], row["token"], *times, row["agent"])))
    console().print(table)


def _seconds(stamp: str) -> str:
    """Return a moment without its microseconds."""
    return f"{stamp[:19]}Z"
