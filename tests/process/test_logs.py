"""The output of runs is kept for a while, and not more than so much of it."""

import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.process.logs import tidy

NOW = datetime(2026, 4, 30, 3, 30, tzinfo=UTC)
MONTH = timedelta(days=30)


def leave(root: Path, day: str, run: int, size: int = 10) -> Path:
    directory = root / day / str(run)
    directory.mkdir(parents=True)
    (directory / "output.log").write_bytes(b"x" * size)
    (directory / "end.json").write_bytes(b"")
    return directory


def left(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.glob("*/*"))


def test_what_is_older_than_it_is_kept_goes_with_its_day(tmp_path: Path) -> None:
    leave(tmp_path, "2026-03-01", 1)
    leave(tmp_path, "2026-04-29", 2)
    assert tidy(tmp_path, now=NOW, keep=MONTH, most=1000) == 1
    assert left(tmp_path) == ["2026-04-29/2"]
    assert not (tmp_path / "2026-03-01").exists()


def test_of_too_much_the_oldest_goes_first_and_todays_stays(tmp_path: Path) -> None:
    for run, day in enumerate(["2026-04-27", "2026-04-28", "2026-04-28", "2026-04-30"], 1):
        leave(tmp_path, day, run, size=100)
    assert tidy(tmp_path, now=NOW, keep=MONTH, most=250) == 2
    assert left(tmp_path) == ["2026-04-28/3", "2026-04-30/4"]
    assert tidy(tmp_path, now=NOW, keep=MONTH, most=0) == 1
    assert left(tmp_path) == ["2026-04-30/4"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").write_text("keep me")
    (tmp_path / "2020-01-01").write_text("a file, not a day")
    assert tidy(tmp_path, now=NOW, keep=MONTH, most=0) == 0
    assert (tmp_path / "notes" / "mine").read_text() == "keep me"
    assert (tmp_path / "2020-01-01").exists()


def test_what_goes_away_while_it_is_measured_is_no_error(tmp_path: Path) -> None:
    run = leave(tmp_path, "2026-04-29", 1)
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            (run / "0.step" / "deep").mkdir(parents=True)
            (run / "0.step" / "deep" / "out").write_bytes(b"x")
            shutil.rmtree(run / "0.step")

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(300):
            assert tidy(tmp_path, now=NOW, keep=MONTH, most=1000) == 0
    finally:
        is_over.set()
        busy.join()


def test_nothing_to_tidy_is_no_error(tmp_path: Path) -> None:
    assert tidy(tmp_path / "none", now=NOW, keep=MONTH, most=0) == 0
