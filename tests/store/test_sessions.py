"""Sessions in the ledger: by digest, for twelve hours since the last use, as long as their token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.core.access import (
    MOST_SESSIONS,
    SESSION_BEGUN,
    SESSION_ENDED,
    SESSION_LASTS,
    Sessions,
    Token,
    Tokens,
)
from horae.core.actor import Scope
from store.ledger_suite import MINUTE, NOW, SECOND, story

if TYPE_CHECKING:
    from horae.store.ledger import SqlLedger

READS = (Scope.READ,)


@story
async def test_a_session_is_found_while_it_and_its_token_last(ledger: SqlLedger) -> None:
    tokens, sessions = Tokens(ledger), Sessions(ledger)
    assert not await sessions.begin("ab" * 32, token="ops", agent="", now=NOW), "no such token"
    assert await tokens.add(Token("ops", READS, NOW), "00" * 32)
    assert await sessions.begin("ab" * 32, token="ops", agent="Firefox" * 99, now=NOW)
    assert await sessions.begin("cd" * 32, token="operator", agent="", now=NOW + SECOND)
    found = await sessions.find("ab" * 32, now=NOW)
    assert found is not None
    assert (found.id, found.token, found.scopes) == ("ab" * 6, "ops", READS)
    assert (len(found.agent), found.expires_at) == (200, NOW + SESSION_LASTS)
    assert [each.token for each in await sessions.all(now=NOW)] == ["operator", "ops"]

    for later in (30 * SECOND, MINUTE, MINUTE + SECOND):
        await sessions.renew("ab" * 32, now=NOW + later)
    assert await sessions.find("ab" * 32, now=NOW + SESSION_LASTS + MINUTE - SECOND) is not None
    assert await sessions.find("ab" * 32, now=NOW + SESSION_LASTS + MINUTE) is None
    assert await sessions.find("cd" * 32, now=NOW + SESSION_LASTS + SECOND) is None

    assert await tokens.revoke("ops", now=NOW)
    assert await tokens.add(Token("ops", READS, NOW), "11" * 32)
    assert await sessions.find("ab" * 32, now=NOW) is None, "another token has the name now"


@story
async def test_one_session_is_ended_or_all_are_and_it_is_told(ledger: SqlLedger) -> None:
    sessions = Sessions(ledger)
    for digest in ("ab" * 32, "cd" * 32, "ef" * 32):
        assert await sessions.begin(digest, token="operator", agent="", now=NOW)
    assert await sessions.end("ab", now=NOW) == [], "an id is whole"
    assert [each.id for each in await sessions.end("ab" * 6, now=NOW)] == ["ab" * 6]
    await sessions.renew("ab" * 32, now=NOW + MINUTE)
    assert await sessions.find("ab" * 32, now=NOW) is None, "and does not come back"
    assert len(await sessions.end(None, now=NOW)) == 2
    assert await sessions.all(now=NOW) == []
    told = [each.kind for each in await ledger.events_after(0)]
    assert told == [SESSION_BEGUN] * 3 + [SESSION_ENDED] * 3


@story
async def test_of_very_many_sessions_the_one_not_used_for_longest_ends(ledger: SqlLedger) -> None:
    sessions = Sessions(ledger)
    for n in range(MOST_SESSIONS + 1):
        await sessions.begin(f"{n:064}", token="operator", agent="", now=NOW + n * SECOND)
    left = [each.created_at for each in await sessions.all(now=NOW)]
    assert (len(left), min(left)) == (MOST_SESSIONS, NOW + SECOND)
