"""Known secrets, and how they are kept out of what a run puts out.

The supervisor uses this, so nothing is imported here that its interpreter has to load.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MASK = b"[secret]"
SHORTEST = 4  # a shorter secret would blot out ordinary words
LINE = 8  # bytes from which on one line of a secret is masked by itself

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_ESCAPES = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t"}


@lru_cache(maxsize=32)  # a run mostly has the secrets of the run before
def spellings_of(secrets: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return every spelling of some secrets that is looked for: plain, base64, URL, JSON."""
    found = {spelling for secret in secrets for spelling in _spellings(secret)}
    return tuple(sorted(each for each in found if len(each) >= SHORTEST))


class Masker:
    """Masks one stream; what may be the beginning of a secret is kept until more has come."""

    __slots__ = ("_covered", "_kept", "_spellings")

    def __init__(self, spellings: tuple[bytes, ...]) -> None:
        self._spellings = spellings
        self._kept = b""
        self._covered = 0  # how much of what is kept belongs to a secret already masked

    def feed(self, data: bytes) -> bytes:
        if not self._spellings:
            return data
        data = self._kept + data
        return self._shown(data, self._first_doubt(data))

    def rest(self) -> bytes:
        return self._shown(self._kept, len(self._kept))

    def _shown(self, data: bytes, end: int) -> bytes:
        spans = []  # where secrets stand in the data; they may overlap
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
        """Return where the data may end within a secret, at the earliest."""
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
    if b"\n" in bare:  # a key of many lines, of which a program may print one
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
        # The characters of base64 that depend on the secret alone, with so many bytes before it.
        encoded = binascii.b2a_base64(b"\0" * before + secret, newline=False)
        certain = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield certain
        yield certain.replace(b"+", b"-").replace(b"/", b"_")
