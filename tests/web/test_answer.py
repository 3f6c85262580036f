"""Many who ask the same cost what one does, and nobody hears less than was done before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.responses import PlainTextResponse, Response

from core.world import story
from horae.web import answer
from horae.web.answer import KEPT, Together
from web.stage import engine

if TYPE_CHECKING:
    from pathlib import Path


class Looks:
    """Answers with how often it was asked, when it may."""

    def __init__(self) -> None:
        self.count = 0
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self) -> Response:
        self.count += 1
        count = self.count
        await self.may.wait()
        return PlainTextResponse(str(count))


async def asked(together: Together, looks: Looks, key: int = 1) -> int:
    return int(bytes((await together.ask(key, looks)).body))


@story
async def test_those_who_ask_at_once_share_one_look() -> None:
    together, looks = Together(), Looks()
    assert await asyncio.gather(*(asked(together, looks) for _ in range(50))) == [1] * 50
    assert await asked(together, looks) == 1, "and so does whoever comes right after"


@story
async def test_an_answer_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    together, looks = Together(), Looks()
    assert await asked(together, looks) == 1
    monkeypatch.setattr(answer, "FRESH", -1.0)
    looks.may.clear()
    assert await asked(together, looks) == 1, "while the next one is made"
    monkeypatch.setattr(answer, "STALE", -1.0)
    waiting = asyncio.create_task(asked(together, looks))
    await asyncio.sleep(0)
    looks.may.set()
    assert await waiting == 2


@story
async def test_what_was_changed_before_the_question_is_in_the_answer() -> None:
    together, looks = Together(), Looks()
    looks.may.clear()
    before = asyncio.create_task(asked(together, looks))
    await asyncio.sleep(0)
    together.forget()
    after = asyncio.create_task(asked(together, looks))
    await asyncio.sleep(0)
    looks.may.set()
    assert (await before, await after) == (1, 2)
    assert await asked(together, looks) == 2
    together.forget()
    assert await asked(together, looks) == 3


@story
async def test_a_look_that_fails_is_made_again_for_the_next() -> None:
    together, looks = Together(), Looks()

    async def fails() -> Response:
        raise OSError("not now")

    for _ in range(2):
        with pytest.raises(OSError, match="not now"):
            await together.ask(1, fails)
    assert await asked(together, looks) == 1


@story
async def test_one_who_goes_away_takes_the_answer_from_nobody() -> None:
    together, looks = Together(), Looks()
    looks.may.clear()
    gone, stays = (asyncio.create_task(asked(together, looks)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    looks.may.set()
    assert await stays == 1


@story
async def test_only_a_few_answers_are_kept() -> None:
    together, looks = Together(), Looks()
    for key in range(100):
        await asked(together, looks, key)
    assert len(together._kept) == KEPT


@story
async def test_what_is_asked_for_on_one_way_in_is_told_on_the_other(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        for verb, count in [("pause", 1), ("resume", 0)] * 5:
            await client.get("/api/v1/status", headers=here.token)
            await here.post(f"entries/Digest/{verb}")
            told = await client.get("/api/v1/status", headers=here.token)
            assert len(told.json()["paused"]) == count
