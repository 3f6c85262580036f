"""`token` and `open`: who may come in on the port, and a link for the browser."""

from __future__ import annotations

import sys

import click

from horae.cli.desk import NoLedgerError, Place, engine_at, place_options
from horae.cli.output import echo
from horae.errors import Exit


@click.group()
def token() -> None:
    """Show or change the token that lets programs in on the port."""


@token.command()
@place_options
def new(*, root: str, data: str | None) -> int:
    """Make a new token; every session, login link and calendar address ends.

    An engine that runs takes it over at once.
    """
    place = _place(root, data)
    far = engine_at(place)
    if far is None:
        from horae.server.keys import write_token

        write_token(place.directory)
    else:
        far.post("token")
    echo("horae: a new token is made, and the old one lets nobody in any more")
    return Exit.OK


@token.command()
@place_options
def show(*, root: str, data: str | None) -> int:
    """Print the token, for the header `Authorization: Bearer`."""
    from horae.server.keys import TokenFileError, read_token

    place = _place(root, data)
    found = read_token(place.directory)
    if found is None:
        raise TokenFileError(str(place.directory), "there is no token yet")
    echo(found)
    return Exit.OK


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link and open nothing.")
@click.option("--calendar", is_flag=True, help="Print the address for calendar programs instead.")
@place_options
def open_(*, only_print: bool, calendar: bool, root: str, data: str | None) -> int:
    """Open the page of the running engine, logged in by a link that is good once.

    The link is printed, too; on a terminal a browser is asked to follow it. Whoever has the
    address of the calendar sees all planned moments; `horae token new` makes another one.
    """
    from horae.cli.far import EngineUnreachableError

    place = _place(root, data)
    far = engine_at(place)
    if far is None:
        reason = "no engine runs; start it with `horae up`"
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
