"""Make the pictures of the documents: the page in a browser, and what a terminal shows.

    .venv/bin/python scripts/pictures.py          about a minute and a half

The demo is kept by a real engine for a minute, on a port of its own. Debian's chromium logs in by
the link that the demo prints. What stands in docs/pictures afterwards:

    now.png, now-dark.png, timeline.png, agents.png    the page
    transcript.txt, transcript.svg         a plan, kept for some seconds, and a `why`

The commands of the transcript are typed here. In what they print only the name of the temporary
directory and the code of the login link are replaced.
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
SETTLED: Final = 60.0  # seconds after which the demo has something to show
WIDTH: Final = 96

PLAN: Final = """\
* Look at the gate
:PROPERTIES:
:SCHEDULE: */5 * * * * *
:COMMAND:  echo "the gate is shut"
:END:

* Tell me
:PROPERTIES:
:AFTER:    failed missed of Look at the gate
:COMMAND:  notify-send "Look at the gate"
:END:
"""
TYPED: Final = (
    "cat plan.org",
    "horae up --log plain --seconds 12",
    'horae why "Look at the gate"',
)
# path, name, scheme
SHOTS: Final = (
    ("/", "now", "light"),
    ("/", "now-dark", "dark"),
    ("/crew", "agents", "light"),
    ("/timeline?span=1h", "timeline", "light"),
)


def main() -> int:
    """Make all pictures; say how large each is."""
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
    """Return the environment of a terminal on a machine of no place, with a free port."""
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
    """Keep the demo in a folder, and give the link to log in with."""
    process = subprocess.Popen(
        ["horae", "demo", "--keep", folder / "garden"],
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
            raise SystemExit("the demo gave no link")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def shoot(link: str, profile: Path) -> None:
    """Log in, and keep a picture of each page."""
    sys.path.insert(0, str(ROOT / "tests"))
    from server.browser import CHROMIUM, DRIVER, MISSING, browsing, paint, resize

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
            (PICTURES / f"{name}.png").write_bytes(picture(driver))


def picture(driver: Chrome) -> bytes:
    """Return what the window shows, as PNG."""
    told: dict[str, Any] = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(told["data"])


def transcript() -> None:
    """Type the commands into a terminal, and keep what it showed as text and as a picture."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plan.org").write_text(PLAN)
        for command in TYPED:
            console.print(Text.assemble(("$ ", "dim"), (command, "bold")), soft_wrap=True)
            shown = said(command, Path(folder)).replace(folder, "~/garden").rstrip("\n")
            console.print(Text.from_ansi(shown), soft_wrap=True)
            console.print()
    drawn = console.export_svg(title="horae", clear=False)
    # No picture of ours fetches a font from elsewhere.
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    (PICTURES / "transcript.svg").write_text(drawn, encoding="utf-8")
    lines = [line.rstrip() for line in console.export_text(clear=False).rstrip().split("\n")]
    (PICTURES / "transcript.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def said(command: str, folder: Path) -> str:
    """Return what a command shows on a terminal, without the code that would log somebody in."""
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
    return re.sub(r"/login/\S+", "/login/…", text)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when nobody can write any more
        return b""


if __name__ == "__main__":
    sys.exit(main())
