"""How moments, texts and JSON are written down in a ledger.

A moment is a whole number of microseconds since 1970 in UTC: exact, small, and in order.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Final, overload

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TINY: Final = timedelta(microseconds=1)
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)


@overload
def micros(moment: datetime) -> int: ...
@overload
def micros(moment: datetime | None) -> int | None: ...
def micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _TINY


@overload
def moment(number: int) -> datetime: ...
@overload
def moment(number: int | None) -> datetime | None: ...
def moment(number: int | None) -> datetime | None:
    return None if number is None else _EPOCH + timedelta(microseconds=number)


def plain(text: str) -> str:
    r"""Return a text that any store takes: half a surrogate pair and a null are spelled out.

    >>> plain("Digest \ud800\0")
    'Digest \\ud800\\x00'
    """
    if "\0" in text:
        text = text.replace("\0", r"\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def compact(data: Mapping[str, object] | tuple[str, ...]) -> str:
    return _ENCODER.encode(data) if data else "{}"


def compact_words(**words: str) -> str:
    """Return words as `compact` does, if they are given in the order of their names.

    >>> compact_words(reason="it rains", status="skipped")
    '{"reason":"it rains","status":"skipped"}'
    """
    pairs = [f'"{name}":{encode_basestring_ascii(word)}' for name, word in words.items()]
    return f"{{{','.join(pairs)}}}"
