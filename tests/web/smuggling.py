"""Requests that two programs may read in two ways, so that one hides a second request in them."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    """Return a request with some lines in its header, just as they are."""
    lines = b"".join(each + b"\r\n" for each in headers)
    return b"POST / HTTP/" + version + b"\r\nHost: localhost\r\n" + lines + b"\r\n" + body


def get(*headers: bytes) -> bytes:
    """Return a request without a body."""
    return post(*headers).replace(b"POST", b"GET", 1)


CHUNKED: Final = b"Transfer-Encoding: chunked"
NONE: Final = b"0\r\n\r\n"
ALL: Final = b"Content-Length: %d" % len(NONE + HIDDEN)

# What is refused whoever sends it.
AMBIGUOUS: Final = {
    "length and chunks": post(ALL, CHUNKED, body=NONE),
    "chunks and length": post(CHUNKED, ALL, body=NONE),
    "short length and chunks": post(b"Content-Length: 4", CHUNKED, body=b"5c\r\n" + HIDDEN + NONE),
    "chunks in 1.0": post(CHUNKED, body=NONE, version=b"1.0"),
    "another coding": post(b"Transfer-Encoding: xchunked", body=NONE),
    "two codings": post(CHUNKED, b"Transfer-Encoding: x", body=NONE),
    "coding and identity": post(b"Transfer-Encoding: chunked, identity", body=NONE),
    "coding behind a tab": post(b"Transfer-Encoding: \x0bchunked", ALL, body=NONE),
    "two lengths": post(b"Content-Length: 0", ALL, body=NONE),
    "two lengths in one": post(b"Content-Length: 0, %d" % len(NONE + HIDDEN), body=NONE),
    "length with a sign": post(b"Content-Length: +5", body=NONE),
    "length in hex": post(b"Content-Length: 0x5", body=NONE),
    "length with a blank": post(b"Content-Length : 5", ALL, body=NONE),
    "no length": post(b"Content-Length:", body=NONE),
    "folded": get(b"X-A: b\r\n c"),
    "folded with a tab": get(b"X-A: b\r\n\tc"),
    "folded coding": post(b"X-A: b\r\n Transfer-Encoding: chunked", ALL, body=NONE),
    "folded length": post(b"Content-Length:\r\n 5", body=NONE),
    "folded first line": b"GET / HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "bare LF before coding": post(b"X-A: b\nTransfer-Encoding: chunked", ALL, body=NONE),
    "bare LF at the end": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
    "bare CR": get(b"X-A: b\rX-B: c"),
    "two CR": post(b"X-A: b\r", ALL, body=NONE),
    "NUL": get(b"X-A: b\0c"),
    "ESC": get(b"X-A: \x1b[2J"),
    "ESC in the path": get().replace(b"/ ", b"/\x1b[2J ", 1),
    "no colon": post(b"Transfer-Encoding\n: chunked", ALL, body=NONE),
    "no name": get(b": x"),
}
# What is odd, too, and may be answered, as long as nothing of it is a second request.
ODD: Final = {
    "a chunk that ends with LF": post(CHUNKED, body=b"5\nhello\r\n" + NONE),
    "a last chunk that ends with LF": post(CHUNKED, body=b"0\n\n"),
    "a trailer that ends with LF": post(CHUNKED, body=b"0\r\nX-A: b\n\r\n"),
    "an extension with LF": post(CHUNKED, body=b"0;a\nb\r\n\r\n"),
    "a chunk without its end": post(CHUNKED, body=b"5\r\nhelloXX0\r\n\r\n"),
    "a chunk of a size too large": post(CHUNKED, body=b"1" + b"0" * 16 + b"\r\n"),
    "a chunk of a size with a sign": post(CHUNKED, body=b"+5\r\nhello\r\n" + NONE),
    "a chunk of a size in 0x": post(CHUNKED, body=b"0x5\r\nhello\r\n" + NONE),
    "a GET with a body": post(ALL, body=NONE).replace(b"POST", b"GET", 1),
    "a length for the next only": post(b"Connection: close, Content-Length", ALL, body=NONE),
    "a coding for the next only": post(b"Connection: Transfer-Encoding", CHUNKED, body=NONE),
    "to be continued": post(b"Expect: 100-continue", ALL, body=NONE),
    "an upgrade": get(b"Connection: Upgrade", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),
    "an address with another host": get().replace(b"/ ", b"http://other/ ", 1),
    "1.0 kept alive": get(b"Connection: keep-alive").replace(b"1.1", b"1.0", 1),
}
