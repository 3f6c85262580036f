"""Writes the records anew: `.venv/bin/python tests/golden/record.py [STORY]...`.

Each story is told in an environment of its own, in which nothing of the caller's is left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
RECORDS = HERE / "records"


def tell(names: list[str], into: Path, *, talk: bool = False) -> None:
    """Tell stories in a process with a clean environment, and write their records."""
    from commands import start_command

    with tempfile.TemporaryDirectory(prefix="golden-") as made:
        place = Path(made).resolve()
        for name in ("bin", "home", "tmp"):
            (place / name).mkdir()
        environ = {
            "HOME": str(place / "home"),
            "PATH": str(place / "bin"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(place / "tmp"),
            "GOLDEN_PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            "TZ": "UTC",
            "LOGNAME": "ada",
            "USER": "ada",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": "ada" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": "2026-06-05T12:00:00Z" for who in ("AUTHOR", "COMMITTER")},
        }
        words = [__file__, "--here", place, "--into", into, *names, *(["--talk"] if talk else [])]
        with (place / "heard").open("w+") as heard, Path(os.devnull).open() as nothing:
            files = (nothing.fileno(), 1, 2 if talk else heard.fileno())
            if start_command(words, at=place, environ=environ, files=files).wait():
                heard.seek(0)
                raise RuntimeError(f"the records could not be made:\n{heard.read()}")


def _tell_here(place: Path, into: Path, names: list[str], *, talk: bool) -> None:
    from golden import stories
    from golden.product import Terminal
    from golden.story import TOOLS, Story

    os.umask(0o022)
    path = os.environ.pop("GOLDEN_PATH")
    for name in TOOLS:
        found = shutil.which(name, path=path)
        assert found, f"the records need {name}"
        (place / "bin" / name).symlink_to(found)
    (place / "bin" / "python3").symlink_to(sys.executable)
    (place / "bin" / "horae").symlink_to("true")
    terminal = Terminal()
    for name in names:
        story = Story(place / name, terminal, talk=talk)
        shutil.rmtree(place / "home")
        (place / "home").mkdir()
        asyncio.run(stories.STORIES[name](story))
        for surface, text in story.records().items():
            target = into / name / f"{surface}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    terminal.close()


def main() -> None:
    sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]
    asked = argparse.ArgumentParser(description="Write the golden records anew.")
    asked.add_argument("stories", nargs="*", help="which; without one all")
    asked.add_argument(
        "--into", type=Path, default=RECORDS, help="where; else tests/golden/records"
    )
    asked.add_argument("--coverage", action="store_true", help="only print what occurs in them")
    asked.add_argument("--talk", action="store_true", help="print each call and how long it took")
    asked.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    from golden.stories import STORIES

    if given.here is not None:
        _tell_here(given.here, given.into, given.stories, talk=given.talk)
        return
    if given.coverage:
        from golden.coverage import report

        print(report())
        return
    names = given.stories or [*STORIES]
    with tempfile.TemporaryDirectory() as made:
        tell(names, Path(made), talk=given.talk)
        for name in names:  # only when all went well
            shutil.rmtree(given.into / name, ignore_errors=True)
            shutil.copytree(Path(made) / name, given.into / name)


if __name__ == "__main__":
    main()
