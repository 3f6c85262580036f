"""Run the tests of the parsers under the oldest installed CPython, 3.11 or newer.

`re` of 3.11.0 to 3.11.4 reads some patterns wrongly, and Debian 12 has 3.11.2; tests under a newer
Python do not show that. The `python3` of the distribution comes first, then those on the PATH.
Nothing is installed: that Python uses the packages of this environment.
"""
# ruff: noqa: INP001

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from sysconfig import get_paths
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
LEAST: Final = (3, 11)
TESTS: Final = (
    "tests/org",
    "tests/files/test_yaml.py",
    *(f"tests/timing/test_{each}.py" for each in ("duration", "repeater", "rfc3339")),
    *(f"tests/core/test_{each}.py" for each in ("command", "entry", "prompt", "tool_policy")),
    "tests/core/test_agent.py",
    "tests/sources/board/test_task.py",
    *(f"tests/sources/crew/test_{each}.py" for each in ("lifecycle", "rules")),
    *(f"tests/sources/plans/test_{each}.py" for each in ("arming", "check")),
    *(f"tests/sources/triggers/test_{each}.py" for each in ("files", "rules")),
    "tests/test_config.py",
)
# Packages with compiled parts fit one minor version; `near_org` uses one of them.
_COMPILED: Final = re.compile(
    r"^(?:from|import) (?:hypothesis|jsonschema_rs|near_org|yaml)\b", re.MULTILINE
)
_ASK: Final = "import platform, sys; print(platform.python_implementation(), *sys.version_info[:3])"


class Found(NamedTuple):
    """A Python and its version."""

    version: tuple[int, ...]
    path: str


def candidates() -> list[str]:
    """Return the Pythons to try, the one of the distribution first."""
    folders = os.get_exec_path()
    names = ["python3", *(f"python3.{minor}" for minor in range(LEAST[1], sys.version_info[1] + 1))]
    on_path = [shutil.which(name, path=folder) for folder in folders for name in names]
    return list(dict.fromkeys(["/usr/bin/python3", *filter(None, on_path)]))


def version_of(path: str) -> tuple[int, ...] | None:
    """Return the version of a CPython that runs and is new enough, else None."""
    try:
        asked = [path, "-I", "-c", _ASK]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    kind, *numbers = said.stdout.split()
    version = tuple(map(int, numbers))
    return version if kind == "CPython" and version >= LEAST else None


def oldest() -> Found | None:
    """Return the oldest Python that is older than this one; of equals the first."""
    asked = [(version_of(path), path) for path in candidates()]
    found = [Found(version, path) for version, path in asked if version is not None]
    older = [each for each in found if each.version < sys.version_info[:3]]
    return min(older, key=lambda each: each.version, default=None)


def runnable(version: tuple[int, ...]) -> list[str]:
    """Return the test files that can run; with another minor version only the pure ones."""
    named = [ROOT / each for each in TESTS]
    files = [file for each in named for file in (sorted(each.glob("test_*.py")) or [each])]
    if version[:2] != sys.version_info[:2]:
        files = [each for each in files if not _COMPILED.search(each.read_text())]
    return [str(each.relative_to(ROOT)) for each in files]


def main() -> int:
    """Run the tests, or print that no older Python is installed."""
    mine = ".".join(map(str, sys.version_info[:3]))
    floor = oldest()
    if floor is None:
        print(f"floor not run: no CPython older than {mine}, which ran the tests, is installed")  # noqa: T201
        return 0
    print(f"floor: tests of the parsers with {floor.path}, {'.'.join(map(str, floor.version))}")  # noqa: T201
    tests = runnable(floor.version)
    packages = dict.fromkeys((get_paths()["purelib"], get_paths()["platlib"]))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *packages]),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "floor"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HORAE_SCALE": "0.01",
    }
    plugins = ("-p", "no:cacheprovider", "-p", "xdist", "-n", "2")
    command = [floor.path, "-s", "-m", "pytest", *plugins, *tests]
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
