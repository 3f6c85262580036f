"""The output of a run: read from its pipes, with secrets masked, stored on disk within limits.

The supervisor imports this module, which therefore imports only modules written in C.
"""

from __future__ import annotations

import _struct
import binascii
import os
import time
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from hashlib import sha256
else:  # hashlib would load OpenSSL
    try:
        from _sha256 import sha256
    except ImportError:  # from 3.12 on
        from _sha2 import sha256

LOG = b"output.log"
INDEX = b"output.idx"
HEAD = 32 << 20  # bytes kept of the beginning of an output
TAIL = 32 << 20  # bytes kept of its end
PARTS = 8  # files of the end, besides the current one
CHUNK = 1 << 16
STEP = 1 << 16  # bytes between two rows of the index, at most a second apart
FIRST = 1000  # bytes of the first line
LAST = 4000  # bytes kept in memory of the end of a stream
LEFT = 1 << 20  # bytes that may be in a pipe after its command has ended
SHORT = 1 << 15  # bytes of a filter's output that need no file


class Log:
    """The output on disk: its beginning in `output.log`, its end in files `output.log.OFFSET`.

    The index has rows of three numbers: the bytes and lines written before, and the time in
    microseconds. The more rows, the farther they are apart.
    """

    def __init__(self, path: bytes, *, head: int = HEAD, tail: int = TAIL) -> None:
        self._path = path
        self._part = max(CHUNK, tail // PARTS)
        self._directory = -1  # created when needed
        self._descriptor = -1  # created with the first output
        self._index = -1  # created for long output, or output over a long time
        self._parts: list[bytes] = []  # files of the end, the newest last
        self._room = head  # in the current file
        self._lines = self._rows = 0
        self._noted, self._noted_at = 0, time.time()  # of the last row
        self.total = 0
        self.left_out = 0

    def directory(self) -> int:
        if self._directory < 0:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            try:
                self._directory = os.open(self._path, flags)
            except FileNotFoundError:
                os.makedirs(self._path, 0o700, exist_ok=True)
                self._directory = os.open(self._path, flags)
        return self._directory

    def write(self, data: bytes) -> None:
        if data and self._descriptor < 0:
            self._descriptor = self._open(LOG)
        while data:
            if not self._room:
                self._turn()
            else:
                at, step = time.time(), 1 << (self._rows >> 16)
                if at - self._noted_at >= step or self.total - self._noted >= STEP * step:
                    self._note(at)
            part, data = data[: self._room], data[self._room :]
            quietly(write_all, self._descriptor, part)
            self._room -= len(part)
            self.total += len(part)
            self._lines += part.count(b"\n")

    def _turn(self) -> None:
        if len(self._parts) > PARTS:
            quietly(os.remove, self._parts.pop(0), dir_fd=self._directory)
            self.left_out += self._part
        os.close(self._descriptor)
        self._parts.append(LOG + b".%d" % self.total)
        self._descriptor = self._open(self._parts[-1])
        self._room = self._part
        self._note(time.time())

    def _note(self, at: float) -> None:
        if self._index < 0:
            self._index = self._open(INDEX)
        row = _struct.pack("=QQQ", self.total, self._lines, int(at * 1_000_000))
        quietly(write_all, self._index, row)
        self._rows += 1
        self._noted, self._noted_at = self.total, at

    def close(self) -> None:
        for each in (self._directory, self._descriptor, self._index):
            if each >= 0:
                os.close(each)

    def _open(self, name: bytes) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(name, flags, 0o600, dir_fd=self.directory())
        except OSError:  # the disk is full, or the directory was removed: the run continues
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


class Pipe:
    __slots__ = ("fault", "first", "reading", "writing")

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.first = b""  # its first line, if needed
        self.fault = ""  # why it cannot accept more

    def drain(self, log: Log) -> bool:
        """Read what is available, up to a chunk; False: the end, or no more is accepted."""
        try:
            data = os.read(self.reading, CHUNK)
        except BlockingIOError:
            return True
        return bool(data) and self.take(data, log)

    def finish(self, log: Log) -> None:
        """Read the rest of the pipe without waiting: another process may keep it open."""
        try:
            for _ in range(LEFT // CHUNK if self.reading >= 0 else 0):
                data = os.read(self.reading, CHUNK)
                if not data or not self.take(data, log):
                    return
        except BlockingIOError:
            return

    def take(self, data: bytes, log: Log) -> bool:
        raise NotImplementedError

    def close_end(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1


class Stream(Pipe):
    __slots__ = ("_masker", "_wants_first", "last")

    def __init__(self, spellings: tuple[bytes, ...], *, has_first: bool = False) -> None:
        super().__init__()
        self._masker = Masker(spellings)
        self._wants_first = has_first
        self.last = b""  # its last bytes

    def take(self, data: bytes, log: Log) -> bool:
        self._keep(self._masker.feed(data), log)
        return True

    def finish(self, log: Log) -> None:
        super().finish(log)
        self._keep(self._masker.rest(), log)

    def _keep(self, data: bytes, log: Log) -> None:
        if self._wants_first and data:
            line, end, _ = (self.first + data[: FIRST + CHUNK]).lstrip().partition(b"\n")
            self.first = line[:FIRST]
            self._wants_first = not end and len(line) < FIRST
        self.last = (self.last + data)[-LAST:] if len(data) < LAST else data[-LAST:]
        log.write(data)


class Target(Pipe):
    """The output of a filter: stored unchanged, up to a limit; in a file if it is long."""

    __slots__ = ("_file", "_most", "_sum", "data", "path", "size")

    def __init__(self, path: bytes, most: int) -> None:
        super().__init__()
        self.path = path
        self._file = -1
        self._most = most
        self._sum = sha256()
        self.data = b""  # all of it, while it is short
        self.size = 0

    def digest(self) -> str:
        return self._sum.hexdigest()

    def close(self) -> None:
        super().close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, data: bytes, log: Log) -> bool:  # noqa: ARG002 (as of a stream)
        self.size += len(data)
        if self.size > self._most:
            self.fault = f"the output is larger than {self._most} bytes"
            return False
        self._sum.update(data)
        if self.size <= SHORT:
            self.data += data
            return True
        try:
            if self._file < 0:  # it begins with the output so far
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self.path, flags, 0o600)
                self.data, data = b"", self.data + data
            write_all(self._file, data)
        except OSError as error:
            self.fault = f"the output could not be saved: {error.strerror}"
            return False
        return True


def quietly(action: Callable[..., object], *arguments: object, **options: object) -> bool:
    """Call something whose errors cannot be handled; True: it did not fail."""
    try:
        action(*arguments, **options)
    except OSError:
        return False
    return True


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


MASK = b"[secret]"
SHORTEST = 4  # a shorter secret would mask ordinary words
LINE = 8  # length of a line of a secret that is masked on its own

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_ESCAPES = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t"}


@lru_cache(maxsize=32)  # a run usually has the secrets of the run before
def spellings_of(secrets: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return the spellings of secrets to search for: plain, base64, URL, JSON."""
    found = {spelling for secret in secrets for spelling in _spellings(secret)}
    return tuple(sorted(each for each in found if len(each) >= SHORTEST))


class Masker:
    """Masks one stream; a possible beginning of a secret is kept back until more output comes."""

    __slots__ = ("_covered", "_kept", "_spellings")

    def __init__(self, spellings: tuple[bytes, ...]) -> None:
        self._spellings = spellings
        self._kept = b""
        self._covered = 0  # bytes of the buffer that belong to a masked secret

    def feed(self, data: bytes) -> bytes:
        if not self._spellings:
            return data
        data = self._kept + data
        return self._shown(data, self._first_doubt(data))

    def rest(self) -> bytes:
        return self._shown(self._kept, len(self._kept))

    def _shown(self, data: bytes, end: int) -> bytes:
        spans = []  # the positions of secrets in the data; they may overlap
        for spelling in self._spellings:
            start = data.find(spelling)
            while start >= 0:
                spans.append((start, start + len(spelling)))
                start = data.find(spelling, start + 1)
        shown, at = [], self._covered
        for start, stop in sorted(spans):
            if start >= end:
                break
            if start >= at:
                shown += [data[at:start], MASK]
            at = max(at, stop)
        shown.append(data[at:end])
        self._kept = data[end:]
        self._covered = max(0, at - end)
        return b"".join(shown)

    def _first_doubt(self, data: bytes) -> int:
        doubt = len(data)
        for spelling in self._spellings:
            start = data.find(spelling[:1], max(0, len(data) - len(spelling) + 1))
            while 0 <= start < doubt:
                if spelling.startswith(data[start:]):
                    doubt = start
                    break
                start = data.find(spelling[:1], start + 1)
        return doubt


def masked(text: str, secrets: Iterable[str]) -> str:
    raw = frozenset(each.encode("utf-8", "surrogateescape") for each in secrets)
    masker = Masker(spellings_of(raw))
    shown = masker.feed(text.encode("utf-8", "surrogateescape")) + masker.rest()
    return shown.decode("utf-8", "surrogateescape")


def _spellings(secret: bytes) -> Iterator[bytes]:
    if len(secret) < SHORTEST:
        return
    yield secret
    if secret != (bare := secret.strip()) and len(bare) >= SHORTEST:
        yield bare
    if b"\n" in bare:  # a program may print one line of a key
        yield from (line for line in map(bytes.strip, bare.splitlines()) if len(line) >= LINE)
    for form in ("%%%02X", "%%%02x"):
        quoted = b"".join(
            bytes((byte,)) if byte in _PLAIN else (form % byte).encode() for byte in secret
        )
        yield quoted
        yield quoted.replace(b"%20", b"+")
        yield quoted.replace(b"%2F", b"/").replace(b"%2f", b"/")
    yield b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in secret)
    for before in range(3):
        # The base64 characters that depend on the secret alone, by the bytes before it.
        encoded = binascii.b2a_base64(b"\0" * before + secret, newline=False)
        certain = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield certain
        yield certain.replace(b"+", b"-").replace(b"/", b"_")
