"""Modules of sources are loaded when they are first used."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

import horae
from horae import sources
from horae.app import LateSource, Runners
from horae.core.entry import Work
from horae.core.ports import HeldBackError, Job
from horae.core.source import Scan
from horae.sources import OutdatedError, board, late

PLAN = "* Tick\n:PROPERTIES:\n:SCHEDULE: 0 0 1 1 *\n:COMMAND: true\n:END:\n"
UP = """
import sys
from horae.cli.main import main
sys.argv = ["horae", "up", sys.argv[1], "--seconds", "0.5"]
try:
    main()
finally:
    names = sorted(name for name in sys.modules if name.split(".")[0] == "horae")
    print("loaded", *names, file=sys.stderr)
"""


def test_an_engine_loads_what_its_plan_has_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    command = [sys.executable, "-c", UP, str(tmp_path)]
    up = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = up.stderr.splitlines()[-1].split()[1:]
    others = ("agents", "board", "crew", "workflows")
    prefixes = tuple(f"horae.sources.{each}." for each in others)
    assert "horae.sources.plans.runner" in loaded
    assert [each for each in loaded if each.startswith((*prefixes, "horae.timing.phrases"))] == []
    assert len(loaded) <= 120


def test_a_name_that_is_no_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'horae.sources.board' has no attribute"):
        board.chronos  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_of_a_newer_version_is_loaded_into_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (newer := tmp_path / "__init__.py").write_text('__version__ = "99.0.0"\n')
    monkeypatch.setattr(horae, "__file__", str(newer))
    with pytest.raises(OutdatedError, match=r"horae 99\.0\.0 is installed"):
        late("horae.sources.board")("rules")
    monkeypatch.setattr(sources, "__version__", "99.0.0")
    assert late("horae.sources.board")("rules") is board.rules


def test_a_module_that_cannot_be_loaded_is_found_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        sources.load_all()


class Waits:
    """A job of which only the kind of work is looked at."""

    def __init__(self) -> None:
        self.filed = self
        self.work = Work.WORKFLOW


def test_a_run_that_needs_a_module_of_a_newer_version_is_held_until_the_restart() -> None:
    def find(_: Work) -> None:
        raise OutdatedError("99.0.0")

    with pytest.raises(HeldBackError, match="`horae restart` switches to it"):
        asyncio.run(Runners(find).hold(cast("Job", Waits())))


def test_a_source_is_not_made_before_there_is_something_of_it() -> None:
    class Made:
        name = "board"
        settle = None

        async def scan(self, _: object) -> Scan:
            return Scan((), index={"task.md": "1"})

    is_there, made = False, []

    def make() -> Made:
        made.append(1)
        return Made()

    source = LateSource("board", make, lambda: is_there)
    assert asyncio.run(source.scan({})) == Scan(())
    assert not made
    is_there = True
    assert asyncio.run(source.scan({})).index
    assert asyncio.run(source.scan({"task.md": "1"})).index
    assert made == [1]
