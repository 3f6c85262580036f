"""`demo`: a small plan of everything, kept in a directory of its own for as long as one looks."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import click

from horae.cli.output import echo
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from horae.cli.desk import Place

HURRIED: Final = {"wren": 4.0, "moss": 7.0}  # seconds between ticks that the demo asks for
FIRST_MINUTE: Final = 60.0  # in which an engine lets no agent tick by itself
# What stands in the files for moments, and how long after the start these are.
MOMENTS: Final = {
    "@start@": timedelta(),
    "@soon@": timedelta(seconds=5),
    "@later@": timedelta(seconds=20),
}

# What of the environment counts: a plan of one's own is not to leak into this one.
_HEEDED: Final = frozenset({"HORAE_LISTEN", "HORAE_ZONE"})
_OWN_NAMES: Final = {"agentd": ".agentd"}  # in the package nothing is hidden
_MOST: Final = 10_000  # receipts that the summary counts

TOUR: Final = """\
A plan, a crew of two, a board and two triggers are in {root}

Open the link below in a browser, and try this in another terminal:
  cd {root}{path}
  horae status                    what runs, waits and comes; where the agents are in their day
  horae why "Take three seconds"  what was decided last, and why
  horae history shaky             every receipt of one entry; `horae logs shaky` has its words
  horae agent tick wren --watch   one step of its day, now; day.org says which follow
  horae task list                 task 1 is done by moss, and comes back; task 2 waits for task 3
  horae run "Say good morning"    one run now, beside the plan
  $EDITOR plan.org                change a time and save it: it counts at once
  kill -9 {pid}; horae up .  {gap}start it again: nothing runs twice, what was missed says so
"""


class OccupiedError(HoraeError):
    """A directory for the demo in which something is already."""

    code = "occupied"
    exit_code = Exit.CONFLICT

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: something is there already; name a new directory,"
            f" or go on with what is there: horae up {path}"
        )


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="Stop after N seconds.")
@click.option("--keep", metavar="DIR", help="Write the demo to DIR and keep it.")
@click.pass_context
def demo(ctx: click.Context, *, seconds: float | None, keep: str | None) -> int:
    """Run a demo plan until Ctrl-C.

    The plan is in a temporary directory, which is removed afterwards unless --keep names a
    directory. At the end a summary of the receipts is printed.
    """
    from horae.cli.desk import Place
    from horae.cli.up import up

    _shut_out(os.environ)
    with ExitStack() as stack:
        root = _temporary(stack) if keep is None else _empty(keep)
        write_plan(root, listen=_free_address(root))
        echo(_tour(root))
        place = Place.of(root=str(root), data=None)
        stack.callback(_hurry(place).set)
        code = ctx.invoke(up, directory=str(root), data=None, log=None, seconds=seconds)
        _sum_up(place)
    if keep is not None:
        echo(f"\nAll of it is in {root}; go on with: horae up {root}")
    elif root.exists():
        echo(f"horae: {root} could not be removed", err=True)
    return int(code)


def _shut_out(environ: os._Environ[str]) -> None:
    """Forget the settings of other plans, and let runs find the Python and the horae of now."""
    for name in [each for each in environ if each.startswith(("HORAE_", "WB_"))]:
        if name not in _HEEDED:
            del environ[name]
    here = os.path.dirname(sys.executable)  # noqa: PTH120 - not where a link leads
    environ["PATH"] = os.pathsep.join(filter(None, (environ.get("PATH", os.defpath), here)))


def _temporary(stack: ExitStack) -> Path:
    """Return a directory that is gone at the end, also if the terminal is closed."""
    from tempfile import TemporaryDirectory

    made = TemporaryDirectory(prefix="horae-demo-", ignore_cleanup_errors=True)
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    return Path(stack.enter_context(made)).resolve()


def _empty(directory: str) -> Path:
    """Return a directory with nothing in it."""
    path = Path(directory).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise OccupiedError(directory)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_plan(root: Path, *, listen: str | None = None) -> None:
    """Write the plan of the demo, with everything that belongs to it, into a directory."""
    from importlib.resources import files

    from horae.app import SystemClock
    from horae.rules.entry import key_time
    from horae.workspace.edit import create

    now = SystemClock().now()
    for name, source in _walk(files("horae") / "demo"):
        text = source.read_text(encoding="utf-8")
        for word, length in MOMENTS.items():
            text = text.replace(word, key_time(now + length))
        if name == "horae.toml" and listen is not None:
            text = f'listen = "{listen}"  # another than usual: that was in use\n\n{text}'
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        create(target, text.encode())


def _walk(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the files of the demo, each under the name that it has in a plan."""
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        name = above + _OWN_NAMES.get(each.name, each.name)
        if each.is_file():
            yield name, each
        elif each.name != "__pycache__":
            yield from _walk(each, f"{name}/")


def _free_address(root: Path) -> str | None:
    """Return where to listen instead, if somebody listens there already; None: all is well."""
    from horae.config import load
    from horae.server.serve import ListenError, listen_tcp

    wanted = load(root).listen
    try:
        listen_tcp(wanted.host, wanted.port).close()
    except ListenError as error:
        with listen_tcp(wanted.host, 0) as free:
            port = free.getsockname()[1]
        echo(f"horae: {error.address}: {error.reason}; the demo takes port {port}", err=True)
        os.environ.pop("HORAE_LISTEN", None)
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        return f"{host}:{port}"
    return None


def _tour(root: Path) -> str:
    """Return what to try, in words that work in any terminal."""
    from shlex import quote
    from shutil import which

    ours = Path(sys.argv[0]).absolute()
    here = ours if ours.name == "horae" else Path(sys.executable)
    found = which("horae", path=os.environ["PATH"].rpartition(os.pathsep)[0])
    is_known = found is not None and Path(found).parent == here.parent
    path = "" if is_known else f"; PATH={quote(str(here.parent))}:$PATH"
    pid = str(os.getpid())
    return TOUR.format(root=quote(str(root)), path=path, pid=pid, gap=" " * (10 - len(pid)))


def _hurry(place: Place) -> Event:
    """Ask for the agents' ticks of the first minute, until it is over or the event is set.

    After a start an engine lets nobody tick for a minute, so that a restart loop stays cheap;
    whoever looks at a demo does not want to wait for that.
    """
    over = Event()
    Thread(target=_ask_for_ticks, args=(place, over), daemon=True).start()
    return over


def _ask_for_ticks(place: Place, over: Event) -> None:
    from horae.cli.far import Far

    far = Far(place.directory)
    waited = 0.0
    asked_at = dict.fromkeys(HURRIED, 0.0)
    while waited < FIRST_MINUTE and not over.wait(1):
        waited += 1
        for name, pause in HURRIED.items():
            if waited - asked_at[name] < pause:
                continue
            # It may tick already, or the engine may be starting or stopping.
            with suppress(HoraeError, OSError):
                far.post("agents", name, "tick", body={"note": "the demo is in a hurry"})
                asked_at[name] = waited


def _sum_up(place: Place) -> None:
    """Print how many receipts each entry has, and how they ended."""
    from rich.table import Table

    from horae.cli.desk import read
    from horae.cli.tables import console, safe

    counts: dict[str, Counter[str]] = {}
    for line in read(place, lambda desk: desk.history(limit=_MOST)).lines:
        counts.setdefault(line.filed.title, Counter())[line.filed.receipt.status] += 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("receipts", justify="right")
    table.add_column("of")
    table.add_column("how they ended", overflow="fold")
    for title, ends in sorted(counts.items()):
        words = ", ".join(f"{count} {status}" for status, count in sorted(ends.items()))
        table.add_row(str(ends.total()), safe(title), safe(words))
    echo("")
    console().print(table)
