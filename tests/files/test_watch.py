"""What changes beneath a root is told once it has come to rest, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from watchfiles import _rust_notify

from horae.files import watch
from horae.files.watch import changes
from store.ledger_suite import story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

QUIET = timedelta(milliseconds=40)
OFTEN = timedelta(milliseconds=20)
SOON = 10.0  # seconds; only a test that fails takes so long


@pytest.fixture(params=[None, OFTEN], ids=["told", "polling"])
def poll(request: pytest.FixtureRequest) -> timedelta | None:
    found: timedelta | None = request.param
    return found


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_LOOK", 0.05)
    monkeypatch.setattr(watch, "_SAME", 0.05)


class Heard:
    """What was told so far."""

    def __init__(self) -> None:
        self.batches: list[frozenset[str]] = []
        self.notes: list[str] = []
        self._came = asyncio.Event()
        self._waited_for = 0

    def add(self, names: frozenset[str]) -> None:
        self.batches.append(names)
        self._came.set()

    async def of(self, *paths: Path) -> None:
        """Wait until paths have been told of since the last wait."""
        wanted = {str(path) for path in paths}
        with suppress(TimeoutError):
            async with asyncio.timeout(SOON):
                while not wanted <= self.since():
                    self._came.clear()
                    await self._came.wait()
        assert wanted <= self.since(), f"not told of within {SOON} s"
        self._waited_for = len(self.batches)

    def since(self) -> frozenset[str]:
        """Return what was told of since the last wait."""
        return frozenset[str]().union(*self.batches[self._waited_for :])


@asynccontextmanager
async def watching(
    *roots: Path, poll: timedelta | None, ignored: tuple[Path, ...] = (), quiet: timedelta = QUIET
) -> AsyncIterator[Heard]:
    heard, stop = Heard(), asyncio.Event()

    async def listen() -> None:
        told = changes(
            roots, quiet=quiet, stop=stop, poll=poll, ignored=ignored, note=heard.notes.append
        )
        async for names in told:
            heard.add(names)

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        stop.set()
        async with asyncio.timeout(SOON):
            await task


@story
async def test_once_the_watch_stands_the_root_is_told_of(
    tmp_path: Path, poll: timedelta | None
) -> None:
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)


@story
async def test_files_that_are_made_saved_replaced_and_removed_are_told_of(
    tmp_path: Path, poll: timedelta | None
) -> None:
    plan = tmp_path / "plan.org"
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        plan.write_text("* One\n")
        await heard.of(plan)
        plan.write_text("* Two\n")
        await heard.of(plan)
        (tmp_path / "new.org").write_text("* Three\n")
        (tmp_path / "new.org").replace(plan)
        await heard.of(plan)
        plan.unlink()
        await heard.of(plan)


@story
async def test_a_directory_that_comes_later_is_watched_too(
    tmp_path: Path, poll: timedelta | None
) -> None:
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        (tmp_path / "garden" / "south").mkdir(parents=True)
        plan = tmp_path / "garden" / "south" / "plan.org"
        plan.write_text("* One\n")
        # Whether file by file or as a whole: what was put into it at once is not lost.
        await heard.of(plan if poll else tmp_path)
        plan.write_text("* Two\n")
        await heard.of(plan)
        (tmp_path / "garden").rename(tmp_path / "field")
        moved = tmp_path / "field" / "south" / "plan.org"
        await heard.of(moved if poll else tmp_path)
        moved.write_text("* Three\n")
        await heard.of(moved)


@story
async def test_our_data_git_and_edits_under_way_are_never_told_of(
    tmp_path: Path, poll: timedelta | None
) -> None:
    data = tmp_path / "state"
    hidden = [tmp_path / ".git", tmp_path / ".horae", data]
    for directory in hidden:
        directory.mkdir()
    async with watching(tmp_path, poll=poll, ignored=(data,)) as heard:
        await heard.of(tmp_path)
        for directory in hidden:
            (directory / "plan.org").write_text("* One\n")
        (tmp_path / ".horae-edit-0123456789abcdef.tmp").write_text("* One\n")
        (tmp_path / ".#plan.org").write_text("* One\n")
        (tmp_path / "last.org").write_text("* One\n")
        await heard.of(tmp_path / "last.org")
        told = frozenset[str]().union(*heard.batches)
        assert told == {str(tmp_path), str(tmp_path / "last.org")}


@story
async def test_agents_of_agentd_are_watched_though_their_directory_begins_with_a_dot(
    tmp_path: Path, poll: timedelta | None
) -> None:
    (tmp_path / ".agentd").mkdir()
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        (tmp_path / ".agentd" / "agent.yml").write_text("name: wren\n")
        await heard.of(tmp_path / ".agentd" / "agent.yml")


@story
async def test_a_link_is_never_followed(tmp_path: Path, poll: timedelta | None) -> None:
    root, outside = tmp_path / "plans", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    async with watching(root, poll=poll) as heard:
        await heard.of(root)
        (outside / "plan.org").write_text("* One\n")
        (root / "plan.org").write_text("* One\n")
        await heard.of(root / "plan.org")
        told = frozenset[str]().union(*heard.batches)
        assert told == {str(root), str(root / "plan.org")}


@story
async def test_a_root_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, poll: timedelta | None
) -> None:
    root = tmp_path / "later"
    async with watching(root, poll=poll) as heard:
        root.mkdir()
        await heard.of(root)
        (root / "plan.org").write_text("* One\n")
        await heard.of(root / "plan.org")


@story
async def test_a_root_that_vanishes_is_waited_for(tmp_path: Path, poll: timedelta | None) -> None:
    root = tmp_path / "plans"
    root.mkdir()
    async with watching(root, poll=poll) as heard:
        await heard.of(root)
        root.rename(tmp_path / "away")
        await heard.of(root)
        shutil.copytree(tmp_path / "away", root)
        await heard.of(root)
        (root / "plan.org").write_text("* One\n")
        await heard.of(root / "plan.org")


@story
async def test_a_link_to_the_root_that_points_elsewhere_is_noticed(
    tmp_path: Path, poll: timedelta | None
) -> None:
    root, new = tmp_path / "current", tmp_path / "new"
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
    root.symlink_to("1")
    async with watching(root, poll=poll) as heard:
        await heard.of(root)
        new.symlink_to("2")
        new.rename(root)
        await heard.of(root)
        (tmp_path / "2" / "plan.org").write_text("* A\n")
        await heard.of(root / "plan.org")


@story
async def test_a_root_may_be_a_file_that_is_saved_anew(
    tmp_path: Path, poll: timedelta | None
) -> None:
    manifest, other = tmp_path / "crew.org", tmp_path / "other.org"
    manifest.write_text("* wren\n")
    async with watching(manifest, poll=poll) as heard:
        await heard.of(manifest)
        for name in ("moss", "robin"):
            other.write_text(f"* {name}\n")
            other.replace(manifest)
            await heard.of(manifest)
        manifest.write_text("* finch\n")
        await heard.of(manifest)


@story
async def test_a_folder_whose_name_is_no_text_stops_no_watch(
    tmp_path: Path, poll: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL", OFTEN)
    odd = tmp_path / os.fsdecode(b"b\xffd")
    odd.mkdir()
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        (odd / "inner.org").write_text("x")
        (tmp_path / "plan.org").write_text("x")
        await heard.of(odd / "inner.org", tmp_path / "plan.org")


@story
async def test_several_roots_are_watched_at_once(tmp_path: Path, poll: timedelta | None) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    for root in roots:
        root.mkdir()
    async with watching(*roots, poll=poll) as heard:
        await heard.of(*roots)
        for root in roots:
            (root / "plan.org").write_text("* One\n")
        await heard.of(*(root / "plan.org" for root in roots))


@story
async def test_a_steady_writer_keeps_nobody_waiting_for_ever(
    tmp_path: Path, poll: timedelta | None
) -> None:
    plan, is_over = tmp_path / "plan.org", threading.Event()

    def write() -> None:
        while not is_over.wait(QUIET.total_seconds() / 8):
            with plan.open("a") as file:
                file.write("* More\n")

    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        writing = threading.Thread(target=write)
        writing.start()
        try:
            await heard.of(plan)
        finally:
            is_over.set()
            writing.join()


@story
async def test_a_burst_of_saves_is_told_of_once(tmp_path: Path, poll: timedelta | None) -> None:
    plans = [tmp_path / f"{number}.org" for number in range(20)]
    async with watching(tmp_path, poll=poll, quiet=timedelta(milliseconds=300)) as heard:
        await heard.of(tmp_path)
        for plan in plans:
            plan.write_text("* One\n")
        await heard.of(*plans)
        assert heard.batches[1:] == [frozenset(map(str, plans))]


@story
async def test_where_the_system_cannot_tell_it_looks_by_itself_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_rust_notify, "RustNotify", refuse)
    monkeypatch.setattr(watch, "POLL", OFTEN)
    async with watching(tmp_path, poll=None) as heard:
        await heard.of(tmp_path)
        (tmp_path / "plan.org").write_text("* One\n")
        await heard.of(tmp_path / "plan.org")
        wanted = f"{tmp_path}: change notifications are not available (no space left on device); checking every 0.02 s instead"
        assert heard.notes == [wanted]


@story
async def test_what_the_system_forgot_to_tell_is_found_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_AGAIN", 0.1)
    async with watching(tmp_path, poll=None) as heard:
        for _ in range(3):
            await heard.of(tmp_path)


@story
async def test_what_breaks_the_watch_is_noted_and_all_is_looked_at_meanwhile(
    tmp_path: Path, poll: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(watch, "_tree", broken)
    monkeypatch.setattr(watch, "POLL", timedelta(milliseconds=10))
    notes: list[str] = []
    stop = asyncio.Event()
    told = changes([tmp_path], quiet=QUIET, stop=stop, poll=poll, note=notes.append)
    for _ in range(2):
        assert await anext(told) == {str(tmp_path)}
    stop.set()
    assert [each async for each in told] == []
    assert set(notes) == {f"{tmp_path}: cannot be watched (ZeroDivisionError)"}


@story
async def test_it_ends_when_it_is_told_to_and_leaves_no_thread(
    tmp_path: Path, poll: timedelta | None
) -> None:
    before = set(threading.enumerate())
    async with watching(tmp_path, poll=poll) as heard:
        await heard.of(tmp_path)
        mine = set(threading.enumerate()) - before
        assert mine
    for thread in mine:
        await asyncio.to_thread(thread.join, SOON)
    assert not any(thread.is_alive() for thread in mine)
