"""The output of runs: kept by its beginning and its end, read by byte, line and time, removed."""

import json
import os
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.core.views import LEFT_OUT, RequestError
from horae.process.logs import LogSelection, RunLog, pack, tidy, trim
from horae.process.output import PARTS, Log

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
    assert tidy(tmp_path, now=NOW, keep=MONTH) == 10
    assert left(tmp_path) == ["2026-04-29/2"]
    assert not (tmp_path / "2026-03-01").exists()


def test_of_too_much_the_oldest_goes_first_and_the_last_of_an_entry_after_all_others(
    tmp_path: Path,
) -> None:
    for run, day in enumerate(["2026-04-27", "2026-04-28", "2026-04-28", "2026-04-30"], 1):
        leave(tmp_path, day, run, size=100)
    assert trim(tmp_path, now=NOW, most=250, valued={1}) == 200
    assert left(tmp_path) == ["2026-04-27/1", "2026-04-30/4"]
    assert trim(tmp_path, now=NOW, most=150, valued={1}) == 100
    assert left(tmp_path) == ["2026-04-27/1"]
    assert trim(tmp_path, now=NOW, most=0, valued={1}) == 0
    assert left(tmp_path) == []


def test_output_of_a_run_that_goes_on_stays_and_is_not_packed(tmp_path: Path) -> None:
    run = leave(tmp_path, "2026-04-30", 1, size=1 << 20)
    (run / "end.json").unlink()
    assert tidy(tmp_path, now=NOW, keep=MONTH) == 1 << 20
    assert trim(tmp_path, now=NOW, most=0) == 1 << 20
    assert [each.name for each in run.iterdir()] == ["output.log"]
    assert trim(tmp_path, now=NOW + timedelta(days=3), most=0) == 0  # its engine is long gone


def test_output_of_a_run_that_goes_on_for_weeks_stays(tmp_path: Path) -> None:
    run = leave(tmp_path, "2026-03-01", 1, size=100)
    (run / "end.json").unlink()
    leave(tmp_path, "2026-03-01", 2, size=100)
    assert tidy(tmp_path, now=NOW, keep=MONTH, going={1}) == 100
    assert trim(tmp_path, now=NOW, most=0, spared={1}) == 100
    assert left(tmp_path) == ["2026-03-01/1"]


@pytest.mark.parametrize("name", ["end.json", "record.json"])
def test_output_of_a_run_that_has_ended_is_packed_and_goes(tmp_path: Path, name: str) -> None:
    run = leave(tmp_path, "2026-04-30", 1, size=1 << 20)
    (run / "end.json").unlink()
    (run / name).write_text('{"finished": "2026-04-30T03:29:00Z"}')
    assert tidy(tmp_path, now=NOW, keep=MONTH) < 1 << 16
    assert {each.name for each in run.iterdir()} == {"output.log.0.gz", name}
    assert trim(tmp_path, now=NOW, most=0) == 0


@pytest.mark.parametrize("record", ['{"finished": null}', "[]", "{"])
def test_a_workflow_has_ended_only_if_its_record_says_so(tmp_path: Path, record: str) -> None:
    run = leave(tmp_path, "2026-04-30", 1, size=1 << 20)
    (run / "end.json").unlink()
    (run / "record.json").write_text(record)
    assert tidy(tmp_path, now=NOW, keep=MONTH) > 1 << 20
    assert trim(tmp_path, now=NOW, most=0) > 1 << 20
    assert (run / "output.log").exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").write_text("keep me")
    (tmp_path / "2020-01-01").write_text("a file, not a day")
    assert tidy(tmp_path, now=NOW, keep=MONTH) == trim(tmp_path, now=NOW, most=0) == 0
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
            assert tidy(tmp_path, now=NOW, keep=MONTH) < 1000
            assert trim(tmp_path, now=NOW, most=1000) < 1000
    finally:
        is_over.set()
        busy.join()


def test_nothing_to_tidy_is_no_error(tmp_path: Path) -> None:
    assert tidy(tmp_path / "none", now=NOW, keep=MONTH) == 0


# A long output

LINES = [b"line %06d of the output\n" % number for number in range(1, 120_001)]  # 3.12 MB
WHOLE = b"".join(LINES)
HEAD = 1 << 20
PART = 1 << 16  # the smallest


@pytest.fixture(scope="module", params=["as written", "packed"])
def long(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunLog:
    """Give the log of a run that has written more than is kept."""
    directory = tmp_path_factory.mktemp("run")
    log = Log(bytes(directory), head=HEAD, tail=PARTS * PART)
    for start in range(0, len(WHOLE), 5000):
        log.write(WHOLE[start : start + 5000])
    log.close()
    assert log.total == len(WHOLE)
    if request.param == "packed":
        before = sum(each.stat().st_size for each in directory.iterdir())
        pack(directory)
        assert sum(each.stat().st_size for each in directory.iterdir()) < before / 3
        assert not (directory / "output.log").exists()
    return RunLog(directory / "output.log")


def whole(log: RunLog, start: int = 0) -> bytes:
    shown = []
    while (found := log.read(start))[0]:
        part, start = found
        shown.append(part)
    return b"".join(shown)


def gap(log: RunLog) -> tuple[int, int]:
    [found] = log.gaps()
    return found


def test_beginning_and_end_are_kept_and_the_cut_says_how_much_is_gone(long: RunLog) -> None:
    start, end = gap(long)
    assert start == HEAD
    assert PARTS * PART <= len(WHOLE) - end <= (PARTS + 1) * PART
    assert whole(long) == WHOLE[:start] + LEFT_OUT % (end - start) + WHOLE[end:]
    assert whole(long, end + 7) == WHOLE[end + 7 :]
    assert long.end == len(WHOLE)
    data, at = long.last(100_000)
    assert (data, at) == (WHOLE[-100_000:], len(WHOLE) - 100_000)
    assert long.last(2 * len(WHOLE)) == (WHOLE[end:], end)


@pytest.mark.parametrize("number", [1, 2, 30_000, 40_000, 119_000, 120_000])
def test_a_line_is_found_by_its_number_and_an_offset_tells_its_line(
    long: RunLog, number: int
) -> None:
    start = long.start_of_line(number)
    assert whole(long, start).startswith(LINES[number - 1])
    assert long.line_of(start) == long.line_of(start + 5) == number
    assert next(long.lines(start)) == (number, start, LINES[number - 1].rstrip())


def test_a_line_that_is_gone_leads_to_the_first_that_is_kept_after_it(long: RunLog) -> None:
    _, end = gap(long)
    assert long.start_of_line(60_000) == end
    assert long.start_of_line(120_001) == long.start_of_line(999_999) == len(WHOLE)


def test_the_last_lines_are_found_from_the_end(long: RunLog) -> None:
    for count in (1, 3, 5000):
        assert whole(long, long.start_of_last(count)) == b"".join(LINES[-count:])
    assert long.start_of_last(0) == len(WHOLE)
    assert long.start_of_last(10**9) == 0


def test_a_search_gives_the_number_of_each_line_before_and_after_the_cut(long: RunLog) -> None:
    assert searched(long, "LINE 000100 of") == [100]
    assert searched(long, "line 1199") == [*range(119_900, 120_000)]
    assert searched(long, "line 1199", line=119_990) == [*range(119_990, 120_000)]
    assert searched(long, "nowhere") == []


def test_a_long_search_goes_on_where_it_was_left(
    long: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.process.logs.SEARCHED", 100_000)
    _, then = long.find("9 of the output")
    assert then is not None
    assert 3800 < then < 3900
    start, end = gap(long)
    before, after = long.line_of(start - 1), long.line_of(end)
    whole = [*range(1, before), *range(after + 1, 120_001)]
    assert searched(long, "9 of the output") == [each for each in whole if each % 10 == 9]


def searched(log: RunLog, text: str, line: int = 1) -> list[int]:
    then: int | None = line
    numbers = []
    while then is not None:
        found, then = log.find(text, then)
        numbers += [each.number for each in found]
    return numbers


def test_the_lines_that_are_kept_and_their_number_are_known(long: RunLog) -> None:
    start, end = gap(long)
    head, tail = WHOLE[:start].count(b"\n") + 1, WHOLE[:end].count(b"\n") + 1
    assert long.kept_lines() == [(1, head), (tail, 120_000)]
    assert long.count() == 120_000


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        (LogSelection(line=119_990), 119_990, 120_000),
        (LogSelection(line=119_990, tail=3), 119_998, 120_000),
        (LogSelection(tail=3, end=26 * 100), 98, 100),
        (LogSelection(start=26 * 98, end=26 * 100), 99, 100),
    ],
)
def test_a_part_is_selected_by_lines_and_bytes(
    long: RunLog, wanted: LogSelection, first: int, last: int
) -> None:
    start, end = long.select(wanted)
    shown = whole(long, start)[: None if end is None else end - start]
    assert shown == b"".join(LINES[first - 1 : last])


def test_the_steps_of_a_workflow_are_found_by_their_headings(tmp_path: Path) -> None:
    steps = [{"name": "Fetch (all)"}, {"name": "Sum"}]
    (tmp_path / "record.json").write_text(
        json.dumps({"steps": steps[:1], "sub_workflows": [{"steps": steps[1:]}]})
    )
    text = b"Fetch (all) (plan.org:3): done in 0.10s\none\nother (plan.org:7): x\n"
    (tmp_path / "output.log").write_bytes(text + b"Sum (plan.org:9): failed: no\ntwo\n")
    log = RunLog(tmp_path / "output.log")
    assert log.steps() == [("Fetch (all)", 1, 0), ("Sum", 4, len(text))]
    assert log.select(LogSelection(step="Fetch (all)")) == (0, len(text))
    assert log.select(LogSelection(step="Sum", tail=1)) == (log.end - 4, None)
    with pytest.raises(RequestError, match=r"no step 'other'; its steps are Fetch \(all\), Sum"):
        log.select(LogSelection(step="other"))


def test_an_output_without_a_line_end_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"one\ntwo\nthr")
    log = RunLog(tmp_path / "output.log")
    assert [each.text for each in log.lines()] == [b"one", b"two", b"thr"]
    assert whole(log, log.start_of_last(2)) == b"two\nthr"
    assert whole(log, log.start_of_line(3)) == b"thr"
    assert log.times_of([5]) == [None]


def test_the_index_tells_when_a_line_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = NOW.timestamp()
    monkeypatch.setattr("time.time", lambda: at)
    log = Log(bytes(tmp_path))
    for number in range(600):
        at += 10
        log.write(b"tick %d\n" % number)
    log.close()
    read = RunLog(tmp_path / "output.log")
    assert read.times_of([read.start_of_line(31)]) == [NOW + timedelta(seconds=310)]
    half = read.start_at(NOW + timedelta(seconds=3005))
    assert whole(read, half).startswith(b"tick 300\n")
    os.utime(tmp_path / "output.log", (at + 0.5, at + 0.5))
    assert whole(read, read.start_at(NOW + timedelta(seconds=6000.2))) == b"tick 599\n"
    assert read.start_at(NOW + timedelta(days=1)) == read.end
    assert read.start_at(NOW) == 0


def test_a_quick_short_output_has_no_index(tmp_path: Path) -> None:
    log = Log(bytes(tmp_path))
    log.write(b"short\n")
    log.close()
    assert [each.name for each in tmp_path.iterdir()] == ["output.log"]
    written = datetime.fromtimestamp((tmp_path / "output.log").stat().st_mtime, UTC)
    read = RunLog(tmp_path / "output.log")
    second = timedelta(seconds=1)
    assert (read.start_at(written - second), read.start_at(written + second)) == (0, 6)
