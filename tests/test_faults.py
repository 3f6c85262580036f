"""Whatever call of the system fails while a source is read, what was good stands, and comes back."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from horae.files.git.layout import layout
from horae.files.read import PlanFileError, PlanMissingError
from horae.sources.board import find_tasks
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.sources.crew.source import CrewCadence, CrewSource
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.source import read_folder
from test_shapes import (
    Ground,
    engine,
    ground as ground,  # noqa: PLC0414 - a fixture
    last,
    look,
    standing,
)
from walks.stage import EIGHT, HandClock, story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from horae.core.source import Scan, Source

FAULTS: Final = (
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
    errno.EACCES,
    errno.ENOSPC,
    errno.ESTALE,
)
CALLS: Final = ("open", "scandir", "read", "stat", "lstat", "fstat", "lseek")


class Fault:
    """Lets the n-th call of the system that a test makes fail; counts them all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._call = getattr(os, name)
        self.count = 0
        self.at = 0
        self.number = 0
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            raise OSError(self.number, os.strerror(self.number), args[0])
        return self._call(*args, **kwargs)

    def set(self, at: int, number: int = 0) -> None:
        self.count, self.at, self.number = 0, at, number


def org(ground: Ground) -> Source:
    return OrgSource(ground.root)


def board(ground: Ground) -> Source:
    tasks = find_tasks(ground.root)
    return BoardSource(Board.below(ground.root, tasks), now=lambda: EIGHT)


def crew(ground: Ground) -> Source:
    rhythm = CrewCadence(EIGHT)
    return CrewSource(ground.root / "crew.org", rhythm, data=ground.root, inline=True)


def scanned(source: Source, index: Mapping[str, str]) -> Scan:
    return asyncio.run(source.scan(index))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("made", [org, board, crew])
def test_no_call_that_fails_ends_a_scan_or_an_entry(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, made: Callable[[Ground], Source], name: str
) -> None:
    whole = scanned(made(ground), {})
    files = {each.item.origin.file for each in whole.entries}
    assert files
    assert whole.problems == ()
    fault = Fault(monkeypatch, name)
    fault.set(0)
    scanned(made(ground), {})
    calls = fault.count
    for number in FAULTS:
        for at in range(1, calls + 1):
            source = made(ground)
            fault.set(at, number)
            scan = scanned(source, dict.fromkeys(files, ""))
            read = {each.item.origin.file for each in scan.entries}
            for file in files - read:
                around = tuple(each for each in scan.standing if not each or each.endswith("/"))
                is_told = file in scan.standing or file.startswith(around)
                assert is_told, (number, at, file)
            assert scan.is_bare is not True
            if files - read:
                assert scan.problems, (number, at)
                named = [str(each).partition(":")[0] for each in scan.problems]
                assert all((ground.root / each).exists() for each in named), named
            fault.set(0)
            again = scanned(source, {})
            assert again.entries == whole.entries, (number, at)
            assert again.problems == ()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("folders", [{"agents", "workflows"}, {"workflows"}, set()])
def test_no_call_that_fails_takes_a_file_of_triggers_for_gone(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, name: str, folders: set[str]
) -> None:
    root = str(ground.root)
    for folder in {"agents", "workflows"} - folders:
        for file in (ground.root / ".agentd" / folder).iterdir():
            file.rename(file.parent.parent / file.name)
        (ground.root / ".agentd" / folder).rmdir()

    def taken() -> tuple[set[str], set[str]]:
        found = read_folder(f"{root}/.agentd", environ={}, base=root, root=root)
        return set(found.files), set(found.unread)

    whole, _ = taken()
    assert len(whole) == (len(folders) or 2)
    fault = Fault(monkeypatch, name)
    fault.set(0)
    taken()
    calls = fault.count
    for number in FAULTS:
        for at in range(1, calls + 1):
            fault.set(at, number)
            try:
                files, unread = taken()
            except PlanFileError as error:  # the folder itself: all of it stands
                missing = isinstance(error, PlanMissingError)
            else:
                missing = any(
                    file not in files and not any(file.startswith(f"{each}/") for each in unread)
                    for file in whole
                )
            assert not missing, (number, at)
            fault.set(0)
            assert taken() == (whole, set())


@pytest.mark.parametrize("name", CALLS)
def test_no_call_that_fails_ends_a_look_at_a_repository(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (ground.root / "elsewhere/worktrees/w").mkdir(parents=True)
    (ground.root / "elsewhere/worktrees/w/HEAD").write_text("ref: refs/heads/main\n")
    (ground.root / "elsewhere/worktrees/w/commondir").write_text("../..\n")
    (ground.root / ".git").write_text(f"gitdir: {ground.root}/elsewhere/worktrees/w\n")
    whole = layout(ground.root)
    assert whole is not None
    fault = Fault(monkeypatch, name)
    for number in FAULTS:
        for at in range(1, 9):
            fault.set(at, number)
            layout(ground.root)
            fault.set(0)
            assert layout(ground.root) == whole


@pytest.mark.parametrize("number", FAULTS)
@story
async def test_an_engine_whose_files_all_fail_decides_on_and_is_whole_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    is_failing = False

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any, *args: Any, **kwargs: Any) -> Any:
            name = str(path)
            is_ours = name.startswith(str(ground.root)) and ".horae" not in name
            if is_failing and (is_ours or kwargs.get("dir_fd") is not None):
                raise OSError(number, os.strerror(number), path)
            return call(path, *args, **kwargs)

        return called

    async with engine(ground, HandClock(EIGHT)) as here:
        await look(here)
        whole = await standing(here)
        for name in ("open", "scandir", "lstat", "stat"):
            monkeypatch.setattr(os, name, failing(getattr(os, name)))
        is_failing = True
        for _ in range(3):
            await look(here)
            assert (await last(here))[2]
        assert await standing(here) == whole
        said = here.app.facts().problems
        assert any(".agentd" in each for each in said), said
        assert any(str(ground.root) in each for each in said), said
        is_failing = False
        await look(here)
        assert here.app.facts().problems == ()
        assert await standing(here) == whole
