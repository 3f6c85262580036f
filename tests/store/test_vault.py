"""Values of secrets beside the ledger: kept in files, and moved out of ledgers from before."""

from __future__ import annotations

import json
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from horae.core.ports import LedgerWriteError
from horae.sources.triggers.rules import TriggerDefinition
from horae.sources.triggers.store import AgentCard, TriggerStore
from horae.store import database, vault
from horae.store.sql import migrations
from horae.store.sqlite import SqliteLedger, restore
from store.ledger_suite import story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
FIRST, SECOND, KEY, GONE = (f"c4nary-{each}-c4nary" for each in ("first", "second", "key", "gone"))
EVERY = (FIRST, SECOND, KEY, GONE)
BEFORE = next(n for n, text in enumerate(migrations()) if text.startswith("-- seal"))


@contextmanager
def horae_from_before() -> Iterator[None]:
    """Let this be the horae that kept secrets in the ledger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "migrations", lambda: migrations()[:BEFORE])
        yield


def hook(name: str, **secrets: str) -> TriggerDefinition:
    config = {"type": "webhook", "scheme": "github", **secrets}
    return TriggerDefinition(name, "reporter", config, "Go.")


def files_with(directory: Path, value: str) -> list[str]:
    """Return the files beneath a directory whose bytes hold a value."""
    found = (each for each in directory.rglob("*") if each.is_file())
    return sorted(
        each.relative_to(directory).as_posix()
        for each in found
        if value.encode() in each.read_bytes()
    )


async def older_ledger(directory: Path) -> None:
    """Live through adding, rotating, removing and a backup, with secrets in the ledger."""
    with horae_from_before():
        ledger = await SqliteLedger.open(directory, now=NOW)
        store = TriggerStore(ledger)
        assert await store.insert("1", hook("deploy", secret=GONE), now=NOW)
        await ledger.back_up_nightly(directory, now=NOW)
        was = await store.get("1")
        assert was is not None
        assert await store.change(was, hook("deploy", secret=FIRST, old_secret=SECOND), now=NOW)
        config = {"env": {"API_KEY": KEY, "NAMED": "${OTHER}", "EMPTY": ""}}
        assert await store.edit_agent(
            AgentCard("reporter", config, True, NOW, NOW), "added", now=NOW
        )
        assert await store.insert("2", hook("short", secret=GONE), now=NOW)
        assert await store.remove("2", now=NOW)
        await ledger.close()
    assert files_with(directory, GONE), "the test would show nothing"


@story
async def test_a_ledger_from_before_is_opened_without_a_byte_of_its_secrets(
    tmp_path: Path,
) -> None:
    await older_ledger(tmp_path)
    ledger = await SqliteLedger.open(tmp_path, now=NOW)
    assert (await ledger.fresh_at()) is None
    [deploy], _ = await TriggerStore(ledger).page(limit=10, offset=0)
    [agent] = await TriggerStore(ledger).agents()
    texts = {**deploy.definition.config, **agent.config["env"]}
    for name, value in (("secret", FIRST), ("old_secret", SECOND), ("API_KEY", KEY)):
        path = tmp_path / texts[name].removeprefix("${").removesuffix("}")
        assert path.read_text() == value
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert files_with(tmp_path, value) == [path.relative_to(tmp_path).as_posix()]
    assert (texts["NAMED"], texts["EMPTY"]) == ("${OTHER}", "")
    assert files_with(tmp_path, GONE) == []
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    await ledger.close()
    kept = sorted((tmp_path / "secrets").iterdir())
    ledger = await SqliteLedger.open(tmp_path, now=NOW)
    await ledger.close()
    assert sorted((tmp_path / "secrets").iterdir()) == kept


@story
async def test_killed_in_the_middle_it_is_done_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await older_ledger(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vault, "_rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            await SqliteLedger.open(tmp_path, now=NOW)
    ledger = await SqliteLedger.open(tmp_path, now=NOW)
    await ledger.close()
    for value in EVERY:
        assert all(each.startswith("secrets/") for each in files_with(tmp_path, value))


@story
async def test_a_backup_from_before_is_restored_without_its_secrets(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    await older_ledger(data)
    with horae_from_before():
        ledger = await SqliteLedger.open(data, now=NOW)
        await ledger.backup(tmp_path / "mine.db")
        await ledger.close()
    await restore(other, tmp_path / "mine.db", now=NOW)
    for value in EVERY:
        assert all(each.startswith("secrets/") for each in files_with(other, value))
    ledger = await SqliteLedger.open(other, now=NOW)
    [deploy], _ = await TriggerStore(ledger).page(limit=10, offset=0)
    await ledger.close()
    assert deploy.definition.config["secret"].startswith("${secrets/webhook-deploy-")


@story
async def test_what_cannot_be_understood_keeps_nobody_from_opening_a_ledger(
    tmp_path: Path,
) -> None:
    await older_ledger(tmp_path)
    with database.connect_draft(tmp_path / "ledger.db") as raw:
        raw.execute("UPDATE trigger SET spec = ? WHERE id = '1'", (json.dumps([1]),))
    raw.close()
    (tmp_path / "backups/ledger-2026-03-01.db").write_bytes(b"no database at all")
    ledger = await SqliteLedger.open(tmp_path, now=NOW)
    await ledger.close()
    assert not any(FIRST in each.read_text("latin-1") for each in tmp_path.glob("ledger.db*"))


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secrets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerWriteError):
        vault.keep(tmp_path, "KEY", FIRST)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_any_name_makes_a_file_of_ours(tmp_path: Path) -> None:
    for name in ("../../x", "", "a/b", "naïve", "x" * 300):
        kept = vault.keep(tmp_path, name, FIRST)
        assert files_with(tmp_path, FIRST) == [kept.removeprefix("${").removesuffix("}")]
        vault.forget(tmp_path, [kept, "${OTHER}", "../ledger.db"])
        assert files_with(tmp_path, FIRST) == []
