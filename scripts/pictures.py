"""Make the pictures of the documents: the page in a browser, and a transcript of a terminal.

    .venv/bin/python scripts/pictures.py          takes about two and a half minutes

The demo runs for a while on a free port, and chromium logs in with the link that the demo prints.
The files in docs/pictures:

    now.png, now-dark.png, timeline.png, agents.png    the page
    transcript.txt, transcript.svg                     a plan, some seconds of `up`, and a `why`

The commands of the transcript really run. In their output only the name of the temporary directory,
the port, the random host name and the code of the login link are replaced.
"""
# ruff: noqa: INP001, S603, S607, T201

from __future__ import annotations

import base64
import io
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
MOST: Final = 300_000  # bytes of one picture
SETTLED: Final = 110.0  # seconds after which the demo has something of everything to show
WIDTH: Final = 150

PLAN: Final = """\
* Back up the plan
:PROPERTIES:
:SCHEDULE: */10 * * * * *
:COMMAND:  sh -c 'tar -czf plan.tar.gz plan.org && echo "plan.tar.gz written"'
:END:

* Report a failed backup
:PROPERTIES:
:AFTER:    failed missed of Back up the plan
:COMMAND:  notify-send "The backup did not run"
:END:
"""
TYPED: Final = (
    "cat plan.org",
    "horae up --log plain --seconds 15",
    'horae why "Back up the plan"',
)
# path, name, scheme
SHOTS: Final = (
    ("/", "now", "light"),
    ("/", "now-dark", "dark"),
    ("/crew", "agents", "light"),
    ("/timeline?span=10m", "timeline", "light"),
)


def main() -> int:
    """Make all pictures, and print their sizes."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    transcript()
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as link:
        time.sleep(SETTLED)
        shoot(link, Path(folder) / "profile")
    large = 0
    for path in sorted(PICTURES.iterdir()):
        size = path.stat().st_size
        large += size > MOST
        print(f"{size:>8,} {path.relative_to(ROOT)}{'  too large' * (size > MOST)}")
    return min(large, 1)


def environ() -> dict[str, str]:
    """Return the environment of a terminal in UTC, with a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TZ": "UTC",
        "TERM": "xterm-256color",
        "COLUMNS": str(WIDTH),
        "HORAE_LISTEN": f"127.0.0.1:{port}",
    }


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """Run the demo in a folder, and yield the link of its page."""
    process = subprocess.Popen(
        ["horae", "demo", "--keep", folder / "demo"],
        env=environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://\S+/login/\S+", line):
                yield found[0]
                break
        else:
            raise SystemExit("the demo printed no link")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def shoot(link: str, profile: Path) -> None:
    """Log in, and write a picture of each page."""
    sys.path.insert(0, str(ROOT / "tests"))
    from web.browser import CHROMIUM, DRIVER, MISSING, browsing, paint, resize

    if CHROMIUM is None or DRIVER is None:
        raise SystemExit(MISSING)
    with browsing(profile) as driver:
        resize(driver, 1200, 820)
        driver.get(link)
        base = "/".join(link.split("/")[:3])
        for path, name, scheme in SHOTS:
            paint(driver, scheme)
            driver.get(base + path)
            time.sleep(2)
            while path == "/" and "Cancel run" not in driver.page_source:
                time.sleep(1)  # until an entry runs; the page shows it by itself
            (PICTURES / f"{name}.png").write_bytes(picture(driver))


def picture(driver: Chrome) -> bytes:
    """Return the content of the window as PNG."""
    shot: dict[str, Any] = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(shot["data"])


def transcript() -> None:
    """Run the commands in a terminal, and write its content as text and as a picture."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plan.org").write_text(PLAN)
        for command in TYPED:
            if " up " in command:  # begin between two runs, and so end between two
                time.sleep((5 - time.time()) % 10)
            console.print(Text.assemble(("$ ", "dim"), (command, "bold")), soft_wrap=True)
            shown = said(command, Path(folder)).replace(folder, "~/myplan").rstrip("\n")
            console.print(Text.from_ansi(shown), soft_wrap=True)
            console.print()
    drawn = console.export_svg(title="horae", clear=False)
    # The picture must not load a font from the network.
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    (PICTURES / "transcript.svg").write_text(drawn, encoding="utf-8")
    lines = [line.rstrip() for line in console.export_text(clear=False).rstrip().split("\n")]
    (PICTURES / "transcript.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def said(command: str, folder: Path) -> str:
    """Return the output of a command on a terminal, without the code of the login link."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environ(),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        chunks = []
        while chunk := _read(ours):
            chunks.append(chunk)
    os.close(ours)
    text = b"".join(chunks).decode().replace("\r", "")
    return re.sub(r"http://\S+/login/\S+", "http://horae-5b0c….localhost:7117/login/…", text)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux raises it when the other end is closed
        return b""


if __name__ == "__main__":
    sys.exit(main())
