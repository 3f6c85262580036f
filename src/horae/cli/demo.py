"""`demo`: a small plan that shows everything once, in a directory of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from shlex import quote
from shutil import which
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

import click

from horae.cli import connection, options, output, up
from horae.client import Client
from horae.config import load
from horae.core import clock, entry
from horae.errors import Exit, HoraeError
from horae.files.edit import create
from horae.process.launcher import allow_descriptors
from horae.web.serve import ListenError, listen_tcp

if TYPE_CHECKING:
    from horae.app import App

REQUESTED: Final = {"triage": 13.0, "deps": 18.0}  # seconds between requests for a tick
FIRST_MINUTE: Final = 60.0  # in which an engine starts no tick by itself
PACE: Final = 1.0  # seconds between two lines of the log
# The times in the files of the demo, in seconds from its start.
TIMES: Final = {"@start@": 0, "@notes@": 10, "@deploy@": 16, "@tag@": 24}
# The variables that the demo uses: the settings of another plan must not leak into this one.
_USED: Final = frozenset({"HORAE_LISTEN", "HORAE_ZONE"})
_MOST: Final = 10_000  # receipts that the summary counts

TOUR: Final = (files("horae") / "template" / "tour.txt").read_text(encoding="utf-8")


@click.command()
@options.seconds_option
@click.option("--keep", metavar="DIR", help="Write the demo to DIR and keep it.")
def demo(*, seconds: float | None, keep: str | None) -> int:
    """Run a demo plan until Ctrl-C.

    The plan is in a temporary directory, which is removed afterwards unless --keep names a
    directory. At the end a summary of the receipts is printed.
    """
    # The settings of other plans must not count, and the PATH must lead to this horae.
    for name in [each for each in os.environ if each.startswith(("HORAE_", "WB_"))]:
        if name not in _USED:
            del os.environ[name]
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join(filter(None, (path, os.path.dirname(sys.executable))))
    with ExitStack() as stack:
        if keep is None:
            made = TemporaryDirectory(prefix="horae-demo-", ignore_cleanup_errors=True)
            # It is removed also if the terminal is closed.
            signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
            root = Path(stack.enter_context(made)).resolve()
        else:
            root = Path(keep).absolute()
            if root.exists() and (not root.is_dir() or any(root.iterdir())):
                remedy = f"name a new directory, or continue a demo that is there: horae up {keep}"
                said = f"{keep} is not empty; {remedy}"
                raise HoraeError(said, code="occupied", exit_code=Exit.CONFLICT, path=keep)
            root.mkdir(parents=True, exist_ok=True)
        other = _free_address(root)
        write_plan(root, listen=other)
        place = connection.Place.of(root=str(root), data=None)
        allow_descriptors()
        over = Event()
        stack.callback(over.set)
        Thread(target=_request_ticks, args=(place, over), daemon=True).start()
        began = monotonic()

        def begin(app: App, link: str | None) -> None:
            page = link or "the page could not be started, see below"
            if other is not None:
                page += f"  (port {other.rpartition(':')[2]}: the usual one is in use)"
            ours = Path(sys.argv[0]).absolute()
            here = (ours if ours.name == "horae" else Path(sys.executable)).parent
            found = which("horae", path=os.environ["PATH"].rpartition(os.pathsep)[0])
            is_known = found is not None and Path(found).parent == here
            # Commands that work in any terminal.
            path = "" if is_known else f"; PATH={quote(str(here))}:$PATH"
            crash = f"kill -9 {os.getpid()}; horae up ."
            output.echo(TOUR.format(root=quote(str(root)), path=path, page=page, crash=crash))
            up.log_notes(app.notes)

        config = load(root)
        # The screen of `up` would hide the first lines.
        running = up.run_plans(config, shown="plain", seconds=seconds, begin=begin, pace=PACE)
        with up.logging_to(
            "plain", level="info", zone_name=config.zone or clock.machine_zone().key
        ):
            code = asyncio.run(running)
        _sum_up(place, monotonic() - began)
    if keep is not None:
        output.echo(f"\nThe demo is in {root}; to continue it: horae up {root}")
    elif root.exists():
        output.echo(f"horae: {root} could not be removed", err=True)
    else:
        output.echo(f"\n{root} is removed; to keep the directory of a demo: horae demo --keep DIR")
    return int(code)


def write_plan(root: Path, *, listen: str | None = None) -> None:
    now = clock.SystemClock().now()
    yesterday = f"<{now - timedelta(days=1):%Y-%m-%d %a %H:%M}>"
    folder = Path(str(files("horae") / "demo"))
    for source in sorted(folder.rglob("*")):
        if source.is_dir() or source.parent.name == "__pycache__":
            continue
        text = source.read_text(encoding="utf-8").replace("@yesterday@", yesterday)
        for word, seconds in TIMES.items():
            text = text.replace(word, entry.key_time(now + timedelta(seconds=seconds)))
        if source.name == "horae.toml" and listen is not None:
            text = f'listen = "{listen}"  # the default port was in use\n\n{text}'
        top, *rest = source.relative_to(folder).parts
        target = root.joinpath(".agentd" if top == "agentd" else top, *rest)  # hidden only there
        target.parent.mkdir(parents=True, exist_ok=True)
        create(target, text.encode())


def _free_address(root: Path) -> str | None:
    wanted = load(root).listen
    try:
        listen_tcp(wanted.host, wanted.port).close()
    except ListenError:
        with listen_tcp(wanted.host, 0) as free:
            port = free.getsockname()[1]
        os.environ.pop("HORAE_LISTEN", None)
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        return f"{host}:{port}"
    return None


def _request_ticks(place: connection.Place, over: Event) -> None:
    """Request the ticks of the first minute, in which an engine that has started starts none."""
    client = Client(place.directory)
    waited = 0.0
    requested_at = dict.fromkeys(REQUESTED, 0.0)
    while waited < FIRST_MINUTE and not over.wait(1):
        waited += 1
        for name, pause in REQUESTED.items():
            # The agent may be running, or the engine may be starting or stopping.
            with suppress(HoraeError, OSError):
                if waited - requested_at[name] >= pause:
                    client.tick(name, note="requested by the demo")
                    requested_at[name] = waited


def _sum_up(place: connection.Place, seconds: float) -> None:
    counts: dict[str, Counter[str]] = {}
    for line in connection.read(place, lambda service: service.history(limit=_MOST)).receipts:
        counts.setdefault(line.title, Counter())[line.status] += 1
    total = sum(each.total() for each in counts.values())
    receipts = "1 receipt" if total == 1 else f"{total} receipts"
    output.echo(f"\nHorae wrote {receipts} in {seconds:.0f}s, one for each occurrence:\n")
    rows = []
    for title, ends in sorted(counts.items()):
        words = ", ".join(f"{count} {status}" for status, count in sorted(ends.items()))
        rows.append((f"{ends.total():>8}", title, words))
    output.print_table(("receipts", "entry", "outcomes"), rows)
