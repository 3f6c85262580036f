"""On whose behalf something is done."""

import asyncio

import pytest

from horae.core.actor import LONGEST, acting, actor_words, current_actor


def test_without_a_request_the_engine_acts() -> None:
    assert current_actor() == "engine"


def test_inside_a_request_its_actor_counts_and_afterwards_no_longer() -> None:
    with acting("token:ops"):
        with acting("agent:triage"):
            assert current_actor() == "agent:triage"
        assert current_actor() == "token:ops"
    assert current_actor() == "engine"


def test_two_requests_at_a_time_do_not_mix() -> None:
    async def asked(actor: str) -> str:
        with acting(actor):
            await asyncio.sleep(0)
            return current_actor()

    async def both() -> list[str]:
        return list(await asyncio.gather(asked("cli:ada"), asked("cli:ben")))

    assert asyncio.run(both()) == ["cli:ada", "cli:ben"]


def test_a_thread_that_a_request_waits_for_acts_for_it() -> None:
    async def asked() -> str:
        with acting("cli:ada"):
            return await asyncio.to_thread(current_actor)

    assert asyncio.run(asked()) == "cli:ada"


def test_an_actor_has_a_bounded_length() -> None:
    with acting("cli:" + "x" * 1000):
        assert len(current_actor()) == LONGEST


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        ("cli:ada", "ada, on the command line"),
        ("token:ops", "token ops"),
        ("session:ops", "token ops, from the page"),
        ("agent:triage", "agent triage"),
        ("engine", "the engine"),
    ],
)
def test_an_actor_reads_as_a_phrase(actor: str, words: str) -> None:
    assert actor_words(actor) == words
