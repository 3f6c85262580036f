"""No spelling of a known secret is shown, however the output is cut."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, strategies as st

from horae.process.output import MASK, Masker, spellings_of

SECRET = b"hunter2/+=& \xc3\xa9"


def masked(spellings: tuple[bytes, ...], *chunks: bytes) -> bytes:
    masker = Masker(spellings)
    return b"".join([*map(masker.feed, chunks), masker.rest()])


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET, safe="").encode(),
        quote(SECRET).encode(),
        quote_plus(SECRET).encode(),
        json.dumps('a"b\\c\nd').encode()[1:-1],
        *(base64.b64encode(b"x" * before + SECRET + b"tail") for before in range(4)),
        *(base64.urlsafe_b64encode(b"x" * before + SECRET) for before in range(3)),
    ],
)
def test_every_spelling_is_masked(spelling: bytes) -> None:
    shown = masked(spellings_of(frozenset({SECRET, b'a"b\\c\nd'})), b"<" + spelling + b">")
    assert MASK in shown
    assert b"hunter" not in shown
    assert len(shown) < len(spelling) + 12 - len(SECRET) // 2 + len(MASK)


def test_a_secret_too_short_to_be_told_from_words_is_not_looked_for() -> None:
    assert spellings_of(frozenset({b"abc", b""})) == ()


def test_one_line_of_a_secret_of_many_lines_is_masked_by_itself() -> None:
    masker = Masker(spellings_of(frozenset([b"begin\nfirst-half-of-it\r\nsecond-half-of-it\n"])))
    said = masker.feed(b"begin at 2: second-half-of-it, first-half-of-it\n") + masker.rest()
    assert said == b"begin at 2: " + MASK + b", " + MASK + b"\n"


def test_what_cannot_begin_a_secret_is_shown_at_once() -> None:
    masker = Masker((b"secret",))
    assert masker.feed(b"hello\n") == b"hello\n"
    assert masker.feed(b"say sec") == b"say "
    assert masker.feed(b"ond\n") == b"second\n"
    assert masker.rest() == b""


def test_a_longer_secret_that_begins_like_a_shorter_one_is_masked_whole() -> None:
    assert masked((b"abcd", b"abcdefgh"), b"xabcd", b"efghy") == b"x" + MASK + b"y"


def test_a_secret_that_overlaps_another_leaves_no_end_behind() -> None:
    assert masked((b"abcd", b"cdef"), b"-abcdef-") == b"-" + MASK + b"-"


@given(
    st.lists(st.text("ab", min_size=4, max_size=6).map(str.encode), min_size=1, max_size=4),
    st.lists(st.text("abc", max_size=9).map(str.encode), max_size=8),
)
@example([b"aaaa"], [b"aaa", b"aaa", b"aaac"])
def test_cutting_the_output_changes_nothing_and_no_secret_is_left(
    secrets: list[bytes], chunks: list[bytes]
) -> None:
    spellings = tuple(sorted(set(secrets)))
    text = b"".join(chunks)
    shown = masked(spellings, *chunks)
    assert shown == masked(spellings, text)
    hidden = bytearray(text)
    for secret in spellings:
        for start in range(len(text)):
            if text.startswith(secret, start):
                hidden[start : start + len(secret)] = b"#" * len(secret)
    assert shown.replace(MASK, b"") == bytes(hidden).replace(b"#", b"")
