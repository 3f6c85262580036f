"""Output of runs on disk: found by byte, line and time, packed, measured, removed in time."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from array import array
from bisect import bisect_left, bisect_right
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.receipt import steps_in
from horae.core.views import LEFT_OUT, RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import timedelta

log = logging.getLogger(__name__)

CHUNK: Final = 1 << 16  # bytes that are read at once
PACK: Final = 4 << 20  # bytes per packed file
SMALL: Final = 1 << 16  # bytes; smaller files are not packed
SEARCHED: Final = 8 << 20  # bytes searched per call

_REPORT: Final = "end.json"
_RECORD: Final = "record.json"
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PART: Final = re.compile(r"(?:\.(\d{1,18}))?(\.gz)?", re.ASCII)
_HEADING: Final = re.compile(rb"(.+) \([^()]+:\d+\): ")  # of a step in the output of a workflow
_OFFSET, _LINE, _TIME = range(3)  # the columns of the index


class LogPart(NamedTuple):
    start: int
    end: int
    path: str
    is_packed: bool


class LogLine(NamedTuple):
    number: int  # from 1
    start: int  # of its first byte
    text: bytes  # without the line end


class LogStep(NamedTuple):
    name: str
    line: int  # of its heading
    start: int


class LogSelection(NamedTuple):
    start: int = 0  # bytes
    end: int | None = None
    line: int | None = None  # from this line on
    since: datetime | None = None
    step: str | None = None
    tail: int | None = None  # lines


class RunLog:
    """The output of a run: its beginning and, if it is long, its end, in one or several files."""

    def __init__(self, path: Path) -> None:
        self._directory, self._name = os.fspath(path.parent), path.name
        self._index = array("Q")  # the part read so far

    def parts(self) -> list[LogPart]:
        """Return the files of the output in order; bytes between two of them may be missing."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        found = []
        for name in names:
            match = name.startswith(self._name) and _PART.fullmatch(name[len(self._name) :])
            if match:
                path, is_packed = f"{self._directory}/{name}", match[2] is not None
                start = int(match[1] or 0)
                found.append(LogPart(start, start + _length(path, is_packed), path, is_packed))
        kept: list[LogPart] = []
        for part in sorted(found, key=lambda each: (each.start, each.is_packed)):
            # During packing, both files exist.
            if part.end > part.start and (not kept or part.start >= kept[-1].end):
                kept.append(part)
        return kept

    def gaps(self) -> list[tuple[int, int]]:
        each = pairwise(self.parts())
        return [(one.end, two.start) for one, two in each if one.end != two.start]

    @property
    def end(self) -> int:
        parts = self.parts()
        return parts[-1].end if parts else 0

    def read(self, start: int, most: int = CHUNK) -> tuple[bytes, int]:
        """Return bytes from an offset on, and the offset of the next; empty at the end.

        A gap is replaced by a line with its length.
        """
        for _ in range(3):  # a file may be packed or removed meanwhile
            part = next((each for each in self.parts() if each.end > start), None)
            if part is None:
                break
            if part.start > start:
                return LEFT_OUT % (part.start - start), part.start
            if data := _bytes(part, start - part.start, most):
                return data, start + len(data)
        return b"", start

    def next_kept(self, start: int) -> int:
        part = next((each for each in self.parts() if each.end > start), None)
        return start if part is None else max(start, part.start)

    def last(self, most: int) -> tuple[bytes, int]:
        """Return at most *most* last bytes without a gap, and their offset."""
        data, start = b"", None
        for part in reversed(self.parts()):
            if len(data) >= most or (start is not None and part.end != start):
                break
            size = min(most - len(data), part.end - part.start)
            data = _bytes(part, part.end - part.start - size, size) + data
            start = part.end - size
        return data, start or 0

    def start_of_last(self, count: int, end: int | None = None) -> int:
        return self.start_of_line(self.count(end) - count + 1)

    def start_of_line(self, number: int) -> int:
        """Return the offset of a line, or of the first one after it that is not missing."""
        before = number - 1  # line ends
        if before <= 0:
            return 0
        start, lines = _near(self._rows(), _LINE, before - 1)[:2]
        while lines < before:
            data, after = self.read(start)
            if not data:
                break
            if after - start != len(data):  # a gap
                lines = _near(self._rows(), _OFFSET, after)[_LINE]
            elif (found := data.count(b"\n")) < before - lines:
                lines += found
            else:
                return after - len(data.split(b"\n", before - lines)[-1])
            start = after
        return start

    def start_at(self, at: datetime) -> int:
        """Return the offset of what was written at a time or later, within a second."""
        rows = self._rows()
        wanted = int(at.timestamp() * 1_000_000)
        row = bisect_left(range(len(rows) // 3), wanted, key=lambda each: rows[3 * each + _TIME])
        if row < len(rows) // 3:
            return rows[3 * row]
        # The part after the last row was written within a second, or is short.
        parts = self.parts()
        with opened(parts[-1].path if parts else "") as descriptor:
            written = 0.0 if descriptor is None else os.fstat(descriptor).st_mtime
        if written < at.timestamp():
            return self.end
        return rows[3 * row - 3] if row else 0

    def times_of(self, offsets: Iterable[int]) -> list[datetime | None]:
        """Return when the output had reached offsets, within a second; None: unknown."""
        rows, times = self._rows(), list[datetime | None]()
        for offset in offsets:
            micros = _near(rows, _OFFSET, offset)[_TIME]
            times.append(datetime.fromtimestamp(micros / 1_000_000, UTC) if micros else None)
        return times

    def line_of(self, offset: int) -> int:
        start, lines = _near(self._rows(), _OFFSET, offset)[:2]
        while start < offset:
            data, after = self.read(start, min(CHUNK, offset - start))
            if not data or after - start != len(data):
                break
            lines, start = lines + data.count(b"\n"), after
        return lines + 1

    def lines(
        self, start: int = 0, *, end: int | None = None, having: bytes = b""
    ) -> Iterator[LogLine]:
        """Yield the lines from an offset on.

        A line longer than a mebibyte is yielded in pieces. *having* (in lower case) selects lines
        that contain it.
        """
        number = self.line_of(start) if start else 1
        rest = b""
        while True:
            most = CHUNK if end is None else max(0, min(CHUNK, end - start))
            data, after = self.read(start, most)
            is_gap = after - start != len(data)
            at, block = start - len(rest), rest if is_gap else rest + data
            whole: list[bytes] = []
            if having in block.lower():
                *whole, rest = block.split(b"\n")
            else:  # the usual case of a search
                line_end = block.rfind(b"\n") + 1
                number, at, rest = number + block.count(b"\n"), at + line_end, block[line_end:]
            for each in whole:
                if having in each.lower():
                    yield LogLine(number, at, each)
                number, at = number + 1, at + len(each) + 1
            if rest and (is_gap or not data or len(rest) >= 1 << 20):
                if having in rest.lower():
                    yield LogLine(number, at, rest)
                rest = b""
            if not data:
                return
            start = after
            if is_gap:  # line numbers are unknown after a gap
                number = _near(self._rows(), _OFFSET, start)[_LINE] + 1

    def find(self, text: str, line: int = 1) -> tuple[Iterator[LogLine], int | None]:
        """Return lines with a text from a line on, and the line at which to continue, if any.

        The case of ASCII letters is ignored. The text is no pattern: one that takes hours to match
        would stop the engine.
        """
        start = self.start_of_line(line)
        end = start + SEARCHED
        if end >= self.end:
            return self.lines(start, having=text.encode().lower()), None
        then = max(self.line_of(end), self.line_of(start) + 1)
        until = self.start_of_line(then)
        return self.lines(start, end=until, having=text.encode().lower()), then

    def count(self, end: int | None = None) -> int:
        end = self.end if end is None else end
        return self.line_of(end) - (self.read(end - 1, 1)[0] == b"\n") if end else 0

    def kept_lines(self) -> list[tuple[int, int]]:
        gaps = self.gaps()
        if not self.end:
            return []
        firsts = [1, *(self.line_of(end) for _, end in gaps)]
        lasts = [*(self.line_of(start - 1) for start, _ in gaps), self.count()]
        return [*zip(firsts, lasts, strict=True)]

    def steps(self) -> list[LogStep]:
        names = {str(each.get("name")) for each in steps_in(_record(Path(self._directory)))}
        found = []
        for each in self.lines() if names else ():
            heading = _HEADING.match(each.text)
            if heading and (name := heading[1].decode(errors="replace")) in names:
                found.append(LogStep(name, each.number, each.start))
        return found

    def select(self, wanted: LogSelection) -> tuple[int, int | None]:
        start, end = wanted.start, wanted.end
        if wanted.step is not None:
            steps = self.steps()
            at = next((n for n, each in enumerate(steps) if each.name == wanted.step), None)
            if at is None:
                known = ", ".join(each.name for each in steps)
                said = f"its steps are {known}" if known else "only a workflow has steps"
                raise RequestError(f"the output has no step {wanted.step!r}; {said}")
            start = max(start, steps[at].start)
            end = steps[at + 1].start if at + 1 < len(steps) else end
        if wanted.line is not None:
            start = max(start, self.start_of_line(wanted.line))
        if wanted.since is not None:
            start = max(start, self.start_at(wanted.since))
        if wanted.tail is not None:
            start = max(start, self.start_of_last(wanted.tail, end))
        return start, end

    def _rows(self) -> array[int]:
        with opened(f"{self._directory}/output.idx") as descriptor:
            if descriptor is not None:
                known = len(self._index) * 8
                data = os.pread(descriptor, os.fstat(descriptor).st_size - known, known)
                self._index.frombytes(data[: len(data) // 24 * 24])
        return self._index


def _near(rows: array[int], kind: int, most: int) -> tuple[int, int, int]:
    row = bisect_right(range(len(rows) // 3), most, key=lambda each: rows[3 * each + kind]) - 1
    return (0, 0, 0) if row < 0 else (rows[3 * row], rows[3 * row + 1], rows[3 * row + 2])


@contextmanager
def opened(path: str) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # it does not exist, or was removed
        yield None
        return
    try:
        yield descriptor if S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def _length(path: str, is_packed: bool) -> int:
    with opened(path) as descriptor:
        if descriptor is None:
            return 0
        size = os.fstat(descriptor).st_size
        # The last bytes of a gzip file are its unpacked length.
        return int.from_bytes(os.pread(descriptor, 4, size - 4), "little") if is_packed else size


def _bytes(part: LogPart, start: int, most: int) -> bytes:
    if part.is_packed:
        return _unpacked(part.path)[start : start + most]
    with opened(part.path) as descriptor:
        return b"" if descriptor is None else os.pread(descriptor, most, start)


@lru_cache(maxsize=4)
def _unpacked(path: str) -> bytes:
    import gzip  # not for commands that read no packed log

    try:
        with gzip.open(path) as file:
            return file.read(PACK)
    except (OSError, EOFError) as error:
        log.warning("cannot read %s: %s", path, error)
        return b""


def pack(directory: Path) -> None:
    import gzip  # as above

    for part in _long_parts(directory):
        found = os.stat(part.path)
        for start in range(part.start, part.end, PACK):
            path = f"{directory}/output.log.{start}.gz"
            with gzip.GzipFile(f"{path}.new", "wb", compresslevel=6) as file:
                file.write(_bytes(part, start - part.start, PACK))
            os.utime(f"{path}.new", ns=(found.st_atime_ns, found.st_mtime_ns))
            os.replace(f"{path}.new", path)
        os.remove(part.path)


def _long_parts(directory: Path) -> list[LogPart]:
    parts = RunLog(directory / "output.log").parts()
    return [each for each in parts if not each.is_packed and each.end - each.start >= SMALL]


def _has_ended(run: Path) -> bool:
    # A workflow has no report, and its record exists from the start.
    return (run / _REPORT).exists() or _record(run).get("finished") is not None


def _record(run: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):  # not a workflow, or a record damaged by a power failure
        record = json.loads((run / _RECORD).read_bytes())
        return record if isinstance(record, dict) else {}
    return {}


def tidy(directory: Path, *, now: datetime, keep: timedelta, going: Collection[int] = ()) -> int:
    """Remove output older than *keep*, pack that of ended runs; return the bytes left.

    Runs in *going* are skipped.
    """
    left = 0
    for run, age in _runs(directory, now):
        if age > keep and _number(run) not in going:
            _remove(run)
            continue
        if _long_parts(run) and _has_ended(run):  # in this order: a record can be long
            with suppress(OSError):  # the disk is full, or the file was removed
                pack(run)
        left += _size(run)
    return left


def trim(
    directory: Path,
    *,
    now: datetime,
    most: int,
    valued: Collection[int] = (),
    spared: Collection[int] = (),
) -> int:
    """Remove the oldest output until *most* bytes are left; return the bytes left.

    The output of *valued* runs is removed last; that of *spared* ones, and of others that may be in
    progress, stays.
    """
    runs = [(run, _size(run), age) for run, age in _runs(directory, now)]
    left = sum(size for _, size, _ in runs)
    for run, size, age in sorted(runs, key=lambda each: _number(each[0]) in valued):
        if left <= most:
            break
        if _number(run) not in spared and (_has_ended(run) or age.days > 1):
            left -= size if _remove(run) else 0
    return left


def _runs(directory: Path, now: datetime) -> list[tuple[Path, timedelta]]:
    found = []
    for day in sorted(_children(directory)):
        if _DAY.fullmatch(day.name) and day.is_dir():
            age = now - datetime.fromisoformat(day.name).replace(tzinfo=UTC)
            found += [(run, age) for run in sorted(_children(day), key=_number)]
    return found


def _remove(run: Path) -> bool:
    clear(run)
    if run.exists():
        log.warning("cannot remove %s", run)
        return False
    with suppress(OSError):  # only an empty day is removed
        os.rmdir(run.parent)
    return True


def clear(directory: Path) -> None:
    for where, directories, files in os.walk(directory, topdown=False):
        with suppress(OSError):  # callers check whether it was removed; also below
            os.chmod(where, 0o700)
        for name in (*files, *directories):
            path = os.path.join(where, name)
            is_directory = name in directories and not os.path.islink(path)
            with suppress(OSError):  # as above
                (os.rmdir if is_directory else os.remove)(path)
    with suppress(OSError):  # as above
        os.rmdir(directory)


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _number(run: Path) -> int:
    return int(run.name) if run.name.isdecimal() else 0


def _size(run: Path) -> int:
    sizes = 0
    for place, _, names in os.walk(run):
        for name in names:
            with suppress(OSError):  # it was removed
                sizes += os.lstat(os.path.join(place, name)).st_size
    return sizes


RESERVE: Final = 512 << 20  # bytes to keep free, or a twentieth of a small disk
MOST: Final = 200_000  # directories that are examined
FOLDERS: Final = ("runs", "trees", "cache", "backups", "plan")
OTHERS: Final = "other"
_LEDGER: Final = "ledger"  # prefix of the ledger's files
_BLOCK: Final = 512  # bytes, the unit of a file's disk usage


class Room(NamedTuple):
    free: int  # bytes
    lacking: int  # of the bytes to keep free


class Place(NamedTuple):
    path: str
    size: int


def room_at(directory: Path) -> Room:
    found = shutil.disk_usage(directory)
    return Room(found.free, max(0, min(RESERVE, found.total // 20) - found.free))


def held_in(data: Path) -> dict[str, int]:
    sizes = _sizes(os.fspath(data))
    held = {each: sizes.get(f"{data}/{each}", 0) for each in FOLDERS}
    held[_LEDGER] = sum(
        _space_of(each.path) for each in _files(data) if each.name.startswith(_LEDGER)
    )
    held[OTHERS] = max(0, sizes.get(os.fspath(data), 0) - sum(held.values()))
    return {name: size for name, size in held.items() if size}


def fullest(tops: Iterable[Path]) -> Place | None:
    places = sorted({os.path.realpath(each) for each in tops})
    sizes: dict[str, int] = {}
    for each in places:
        if each not in sizes:  # else it is below another one
            sizes |= _sizes(each)
    found = max(((sizes[each], each) for each in places if each in sizes), default=None)
    while found is not None:
        size, path = found
        inner = [(n, each) for each, n in sizes.items() if os.path.dirname(each) == path != each]
        largest = max(inner, default=(0, ""))
        if 2 * largest[0] <= size:
            return Place(path, size)
        found = largest
    return None


def _sizes(top: str) -> dict[str, int]:
    """Return the bytes of each directory including those below it, on one disk."""
    sizes: dict[str, int] = {}
    with suppress(OSError):  # it was removed
        disk = os.lstat(top).st_dev
        for path, folders, names in os.walk(top):
            if len(sizes) >= MOST:
                break
            folders[:] = [each for each in folders if _disk(f"{path}/{each}") == disk]
            sizes[path] = sum(_space_of(f"{path}/{name}") for name in names)
    for path in reversed(sizes):  # subdirectories come after their parents
        if (above := os.path.dirname(path)) != path and above in sizes:
            sizes[above] += sizes[path]
    return sizes


def _files(directory: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as found:  # as above
        return [each for each in found if each.is_file(follow_symlinks=False)]
    return []


def _space_of(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * _BLOCK
    except OSError:  # as above
        return 0


def _disk(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:  # as above
        return -1
