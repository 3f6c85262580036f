"""Named tokens in the ledger: by digest, at most once a minute written as used, and revoked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.core.access import ADDED, REVOKED, Sessions, Token, Tokens
from horae.core.actor import Scope
from horae.store.sqlite import SqliteLedger, restore
from store.ledger_suite import MINUTE, NOW, SECOND, story

if TYPE_CHECKING:
    from pathlib import Path

    from horae.store.ledger import SqlLedger

OPS = Token("ops", (Scope.READ, Scope.RUN), NOW)


@story
async def test_a_token_is_found_by_its_digest_until_it_is_revoked(ledger: SqlLedger) -> None:
    tokens = Tokens(ledger)
    assert await tokens.add(OPS, "ab" * 32)
    assert not await tokens.add(OPS, "cd" * 32), "the name is taken"
    assert await tokens.add(Token("look", (Scope.READ,), NOW), "ef" * 32)
    assert [each.name for each in await tokens.all()] == ["look", "ops"]
    assert await tokens.find("ab" * 32) == OPS
    assert await tokens.find("cd" * 32) is None

    assert await tokens.revoke("ops", now=NOW)
    assert not await tokens.revoke("ops", now=NOW)
    assert await tokens.find("ab" * 32) is None
    assert await tokens.add(OPS, "cd" * 32), "the name is free again"
    told = [(each.kind, each.facts) for each in await ledger.events_after(0)]
    assert told == [
        (ADDED, {"token": "ops", "scopes": "read run"}),
        (ADDED, {"token": "look", "scopes": "read"}),
        (REVOKED, {"token": "ops"}),
        (ADDED, {"token": "ops", "scopes": "read run"}),
    ]


@story
async def test_the_last_use_is_written_at_most_once_a_minute(ledger: SqlLedger) -> None:
    tokens = Tokens(ledger)
    await tokens.add(OPS, "ab" * 32)
    seen = []
    for now in (NOW, NOW + 59 * SECOND, NOW + MINUTE, NOW + MINUTE + SECOND):
        await tokens.touch("ops", now=now)
        [found] = await tokens.all()
        seen.append(found.used_at)
    assert seen == [NOW, NOW, NOW + MINUTE, NOW + MINUTE]


@story
async def test_with_a_token_its_sessions_end(ledger: SqlLedger) -> None:
    tokens = Tokens(ledger)
    await tokens.add(OPS, "ab" * 32)
    row = "INSERT INTO session VALUES (:digest, :token, 1, 1, 2, 'a browser')"
    for token in ("ops", "operator"):
        values = {"digest": token, "token": token}
        await ledger.write(0, lambda book, values=values: book.execute(row, values))  # type: ignore[misc]
    await tokens.revoke("ops", now=NOW)
    left = await ledger.read(
        lambda book: [each["token"] for each in book.execute("SELECT token FROM session")]
    )
    assert left == ["operator"]


@story
async def test_a_backup_brings_no_revoked_token_back(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "data", now=NOW)
    await Tokens(ledger).add(OPS, "ab" * 32)
    await Tokens(ledger).add(Token("gone", OPS.scopes, NOW), "cd" * 32)
    assert await Sessions(ledger).begin("ef" * 32, token="ops", agent="", now=NOW)
    await ledger.backup(tmp_path / "backup.db")
    await Tokens(ledger).revoke("gone", now=NOW)
    await ledger.close()

    async def restored() -> tuple[list[str], int]:
        restore(tmp_path / "data", tmp_path / "backup.db", now=NOW + MINUTE)
        again = await SqliteLedger.open(tmp_path / "data", now=NOW + MINUTE)
        names = [each.name for each in await Tokens(again).all()]
        sessions = await Sessions(again).all(now=NOW + MINUTE)
        await again.close()
        return names, len(sessions)

    assert await restored() == (["ops"], 0)
    (tmp_path / "data" / "ledger.db").unlink()
    assert await restored() == (["gone", "ops"], 0), "nobody knows any more which was revoked"
