"""`token` and `open`: who may come in on the port, and a link for the browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import click

from horae.cli import connection, group, options
from horae.cli.connection import CommandClock, Place, ask
from horae.cli.options import answer_options, option, place_options
from horae.cli.output import Output, echo, print_answer, print_rows, print_table
from horae.client import Client, EngineUnreachableError
from horae.core import access, actor
from horae.core.access import Sessions, Tokens
from horae.core.text import moment_text
from horae.errors import HoraeError
from horae.store.ledger import SqlLedger
from horae.web import keys

T = TypeVar("T")


@click.group(cls=group.SharedGroup)
def token() -> None:
    """Manage access tokens and sessions.

    A token gives a program access to the HTTP API of the engine. The scopes of a token: `read`
    shows everything, `run` starts and stops runs, `edit` changes definitions, `admin` allows
    everything. The token of the operator is in the data directory and allows everything.
    """


@token.command()
@click.argument("name")
@option(
    "--scope SCOPE",
    "What it allows: read, run, edit or admin; repeat for several, or use commas.",
    name="scopes",
    multiple=True,
    required=True,
)
@answer_options
def add(name: str, *, scopes: Sequence[str], place: Place, output: Output) -> None:
    """Create a token and print it.

    The token is shown only once.
    """
    actor.check_token_name(name)
    wanted = actor.parse_scopes(scopes)

    now = CommandClock().now()

    async def alone(ledger: SqlLedger) -> access.NewToken:
        return await keys.add_token(Tokens(ledger), name, wanted, now=now)

    words = ",".join(actor.scope_words(wanted))
    made = _write(place, lambda client: client.add_token(name, scopes=words), alone)
    print_answer(output, made, made.token)
    if output.is_text:
        echo("horae: save this token now; only its digest is stored", err=True)


@token.command("list")
@answer_options
def list_(*, place: Place, output: Output) -> None:
    """List the tokens, their scopes and their last use."""
    _refuse_no_data(place)
    if place.server is not None:
        found = place.server.tokens().tokens
    else:
        found = ask(place, lambda ledger: keys.all_tokens(place.directory, Tokens(ledger)))
    cells = []
    for each in found:
        unused = "not recorded" if each.name == actor.OPERATOR else "never"
        times = (_when(each.created_at, place), _when(each.used_at, place, unused))
        cells.append((each.name, " ".join(each.scopes), *times))
    names = ("name", "scopes", "created", "last used")
    empty = "no tokens; `horae up` creates the token of the operator"
    print_rows(output, found, lambda: print_table(names, cells, empty=empty))


@token.command()
@click.argument("name")
@answer_options
def revoke(name: str, *, place: Place, output: Output) -> None:
    """Revoke a token.

    Open connections with the token are closed at once.
    """

    async def alone(ledger: SqlLedger) -> access.RevokedToken:
        await keys.revoke_token(Tokens(ledger), name, now=CommandClock().now())
        return access.RevokedToken(name)

    done = _write(place, lambda client: client.revoke_token(name), alone)
    print_answer(output, done, f"token {name} is revoked")


@token.command()
@answer_options
def sessions(*, place: Place, output: Output) -> None:
    """List the browser sessions.

    A session lasts 12 hours after its last use and allows what its token allows.
    """
    _refuse_no_data(place)
    if place.server is not None:
        found = place.server.sessions().sessions
    else:
        found = ask(place, lambda ledger: Sessions(ledger).all(now=CommandClock().now()))
    cells = []
    for each in found:
        at = (each.created_at, each.used_at, each.expires_at)
        times = (_when(moment, place) for moment in at)
        cells.append((each.id, each.token, *times, each.agent))
    names = ("session", "token", "since", "last used", "ends", "browser")
    form = {"empty": "no browser is logged in", "whole": "session"}
    print_rows(output, found, lambda: print_table(names, cells, **form))


@token.command("end-session")
@click.argument("session", metavar="ID|all")
@answer_options
def end_session(session: str, *, place: Place, output: Output) -> None:
    """End a browser session, or all of them.

    Open connections of the session are closed at once.
    """
    done = _end(place, session)
    count = len(done.ended)
    print_answer(output, done, f"{count} session{'' if count == 1 else 's'} ended")


@token.command()
@place_options
def new(*, place: Place) -> None:
    """Replace the token of the operator.

    Every session, link and calendar address becomes invalid. A running engine uses the new
    token at once. Tokens with a name are kept.
    """
    _refuse_no_data(place)
    client = connection.engine_at(place)
    if client is not None:
        client.renew_token()
    else:
        made, now = keys.new_token(), CommandClock().now()
        if place.store is not None:
            connection.ask_shared(place.store, lambda ledger: ledger.share_token(made, now=now))
        keys.write_token(place.directory, made)
        with suppress(HoraeError):  # what is left of them in a ledger lets nobody in any more
            _end(place, "all")
    echo("horae: the token is replaced, and the old one is no longer valid")


@token.command()
@place_options
def show(*, place: Place) -> None:
    """Print the token of the operator.

    Send it in the header `Authorization: Bearer`.
    """
    _refuse_no_data(place)
    found = keys.read_token(place.directory)
    if found is None:
        raise keys.TokenFileError(str(place.directory), "there is no token yet")
    echo(found)


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@click.option("--calendar", is_flag=True, help="Print the address for calendar programs instead.")
@options.place_argument
def open_(*, only_print: bool, calendar: bool, place: Place) -> None:
    """Open the page of the running engine.

    The link logs the browser in and can be used once. The link is printed too; on a terminal a
    browser is opened. The address of the calendar shows all scheduled times to anyone who
    has it; `horae token new` replaces it.
    """
    _refuse_no_data(place)
    client = connection.engine_at(place)
    if client is None:
        reason = "no engine is running; start it with `horae up`"
        raise EngineUnreachableError(str(place.directory), reason)
    if calendar:
        said = client.calendar()
        echo(said.url or said.path)
        return
    link = client.login().url
    echo(link)
    if not only_print and sys.stdout.isatty():
        webbrowser.open(link)


def _refuse_no_data(place: Place) -> None:
    if place.server is None and not place.directory.is_dir():
        raise connection.NoLedgerError(str(place.directory))


def _write(
    place: Place,
    by_engine: Callable[[Client], T],
    alone: Callable[[SqlLedger], Awaitable[T]],
) -> T:
    _refuse_no_data(place)
    connection.refuse_loss(place)
    return connection.write_with(place, by_engine, alone)


def _end(place: Place, session: str) -> access.EndedSessions:
    async def alone(ledger: SqlLedger) -> access.EndedSessions:
        ended = await access.end_sessions(Sessions(ledger), session, now=CommandClock().now())
        return access.EndedSessions([each.id for each in ended])

    return _write(place, lambda client: client.end_session(session), alone)


def _when(moment: datetime | None, place: Place, never: str = "") -> str:
    at = moment and moment_text(moment.replace(microsecond=0), place.zone.key)
    return at or never
