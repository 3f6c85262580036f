"""What a page that stays open is sent: what changed of it, and nothing when nothing did."""

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hypothesis import given, strategies as st

from core.world import story
from horae.web.api import asgi_app
from horae.web.page.live import WrittenPage, changes, compressed, difference
from horae.web.page.routes import routes
from horae.web.stream import Feed
from web.browser import PLAN
from web.stage import engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

SOME = st.lists(st.sampled_from("abc"), max_size=12)


@given(SOME, SOME)
def test_the_lines_that_differ_make_the_new_text_of_the_old_one(
    old: list[str], new: list[str]
) -> None:
    at, cut, lines = difference(old, new)
    text = [*old]
    text[at : at + cut] = lines
    assert text == new


def data(part: bytes) -> dict[str, Any] | None:
    """Return what a part of a stream says, if it says something."""
    _, found, rest = part.decode().partition("data: ")
    told: dict[str, Any] | None = json.loads(rest) if found else None
    return told


@story
async def test_only_what_changes_is_sent_and_a_count_of_seconds_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.web.page.live.PAUSE", 0.0)
    asked = 0
    texts = ["one\nin {}s", "one\nin {}s", "one\nin {}s\ntwo", "one\nin {}s\ntwo", "three"]

    async def write() -> WrittenPage:
        nonlocal asked
        said = texts[min(asked, len(texts) - 1)].format(asked)
        text = said.replace("in ", "<time data-away>in ").replace("s\n", "s</time>\n")
        asked += 1
        return WrittenPage(f'<body data-now="{asked}">\n{text}', 200, 0, 7, f"{asked}", "now")

    async with engine(tmp_path) as here:
        feed = Feed(here.front.service)
        async with aclosing(changes(write, feed, seen=7)) as parts:
            found = []
            async for part in parts:
                if (told := data(part)) is not None:
                    found.append(told)
                if len(found) == 2:
                    break
        assert asked == 5, "it was looked at five times, and two looks showed something new"
        first, second = found
        assert first["lines"][0] == "<body>"
        assert first["lines"][-1] == "two"
        page = first["lines"]
        page[second["at"] : second["at"] + second["cut"]] = second["lines"]
        assert page == ["<body>", "three"]


@story
async def test_what_was_sent_before_shortens_what_is_sent_now() -> None:
    line = b"data: " + bytes(range(33, 126)) * 100 + b"\n\n"

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield line

    sizes, unpack, text = [], zlib.decompressobj(31), b""
    async for part in compressed(parts()):
        sizes.append(len(part))
        text += unpack.decompress(part)  # each part can be read when it comes
        assert text.endswith(line)
    assert sizes[2] < sizes[0]


@story
async def test_a_page_hears_of_a_run_and_a_client_without_gzip_reads_it_plain(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path, PLAN) as here:
        here.serving.router.default = asgi_app(
            here.front, pages=lambda: routes(here.front, tmp_path)
        ).router.default
        event = (await here.get("events", limit=1000))["after"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(event)}
        plain = {**headers, "Accept-Encoding": "identity"}
        async with here.client.stream("GET", "/", headers=plain) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "content-encoding" not in answer.headers
            lines = answer.aiter_lines()
            receipt = (await here.post("entries/digest/run"))["receipt"]
            async with asyncio.timeout(20):
                async for line in lines:
                    if f"ended{receipt}" in line:
                        break
        async with here.client.stream("GET", "/", headers=headers) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            async with asyncio.timeout(20):
                async for line in answer.aiter_lines():
                    if f"ended{receipt}" in line:  # it is told at once: it has changed since
                        break
