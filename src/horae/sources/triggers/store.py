"""Triggers and agents in tables of the ledger.

A change of a trigger changes its entry in the same transaction, and no other entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import NAMESPACE_URL, uuid5

from msgspec import structs

from horae.core.entry import Origin, Unarmed
from horae.core.ports import compact, moment, plain
from horae.core.receipt import WAITS, Filed, Reason, ReasonCode, Receipt, Status
from horae.core.source import Mark, Scan, Scanned, digest_of
from horae.sources.triggers.kinds import WebhookKind
from horae.sources.triggers.rules import Trigger, TriggerDefinition, scanned

if TYPE_CHECKING:
    from horae.core.ports import LedgerRow, LedgerTransaction, Listed, SourceLedger

T = TypeVar("T")

NAME: Final = "trigger"
_EDITS: Final = {"added": "add", "changed": "change_agent", "removed": "remove_agent"}
_AGENT: Final = "agent:"


@dataclass(frozen=True, slots=True)
class AgentCard:
    name: str
    config: Mapping[str, Any]
    is_enabled: bool
    created_at: datetime
    updated_at: datetime
    file: str = ""

    @property
    def id(self) -> str:
        return agent_id(self.name)

    @property
    def env(self) -> Mapping[str, str]:
        env: Mapping[str, str] = self.config.get("env", {})
        return env

    def with_env(self, env: Mapping[str, str]) -> AgentCard:
        return replace(self, config={**self.config, "env": dict(env)}) if env else self


def agent_id(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"horae:agent:{name}"))


def dispatch_id(trigger: str, key: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"horae:dispatch:{trigger}:{key}"))


class TriggerStore:
    def __init__(self, ledger: SourceLedger, *, term: int = 1) -> None:
        self._ledger = ledger
        self._term = term
        self._kinds: dict[str, list[Trigger]] = {}  # by type, since the last change
        # Files of triggers that are not valid, and why; None: not read yet.
        self.broken_files: Mapping[str, str] | None = None

    async def page(self, *, limit: int, offset: int) -> tuple[list[Trigger], int]:
        def look(tx: LedgerTransaction) -> tuple[list[Trigger], int]:
            found = tx.every(_trigger, "trigger.page", limit=limit, offset=offset)
            return found, _count(tx, "count")

        return await self._ledger.read(look)

    async def get(self, trigger: str) -> Trigger | None:
        return await self._first("one", _trigger, id=plain(trigger))

    async def named(self, name: str) -> Trigger | None:
        is_agent = name.startswith(_AGENT)
        return None if is_agent else await self._first("by_name", _trigger, name=plain(name))

    async def of_kind(self, kind: str) -> list[Trigger]:
        # Called after every receipt that ends, nearly always with the same result.
        if kind not in self._kinds:
            found = await self._with_text("type", kind)
            found = [each for each in found if each.definition.kind.type == kind]
            self._kinds[kind] = [each for each in found if each.definition.is_enabled]
        return self._kinds[kind]

    async def webhooks(self) -> list[Trigger]:
        found = await self._with_text("type", "webhook")
        return [each for each in found if isinstance(each.definition.kind, WebhookKind)]

    async def _with_text(self, name: str, value: str) -> list[Trigger]:
        return await self._found("with_text", _trigger, text=compact({name: value})[1:-1])

    async def of_agent(self, agent: str) -> list[Trigger]:
        found = await self._with_text("agent", agent)
        return [each for each in found if each.definition.agent == agent]

    async def of_files(self) -> list[Trigger]:
        found = await self._found("with_text", _trigger, text='"file":')
        return [each for each in found if each.definition.file]

    async def insert(
        self, trigger: str, definition: TriggerDefinition, *, now: datetime
    ) -> Trigger | None:
        """Store a trigger and arm it; None: its id or its name is taken."""
        return await self._put("add", trigger, _facts(definition), now=now)

    async def change(
        self, was: Trigger, definition: TriggerDefinition, *, now: datetime
    ) -> Trigger | None:
        """Change a trigger; None: it was changed meanwhile, or the name is taken."""
        is_again = definition.is_enabled and not was.definition.is_enabled
        facts = {
            **_facts(definition),
            "times": was.times + is_again,
            # Never the same timestamp twice, so that two changes differ.
            "now": max(now, was.updated_at + timedelta(microseconds=1)),
            "was_updated_at": was.updated_at,
            "was_times": was.times,
            "was_enabled": int(was.definition.is_enabled),
        }
        return await self._put("change", was.id, facts, now=now)

    async def remove(self, trigger: str, *, now: datetime) -> bool:
        def drop(tx: LedgerTransaction) -> bool:
            if not tx.change("trigger.remove", id=trigger):
                return False
            was = _entry_of(tx, trigger)
            if was is not None and was.gone_at is None:
                reason = Reason(ReasonCode.ENTRY_REMOVED, "the trigger was removed")
                tx.remove_entry(was, reason=reason, now=now)
            return True

        return await self._write(drop)

    async def agents(self) -> list[AgentCard]:
        return await self._found("agents", _card)

    async def agent(self, word: str) -> AgentCard | None:
        return await self._first("agent", _card, name=f"{_AGENT}{plain(word)}", id=plain(word))

    async def edit_agent(self, card: AgentCard, what: str, *, now: datetime) -> bool:
        """Store an agent that is added, changed or removed; False: nothing was changed."""
        facts = {
            "id": card.id,
            "name": f"{_AGENT}{card.name}",
            "spec": compact(_plain({"config": card.config, "file": card.file})),
            "is_enabled": int(card.is_enabled),
            "now": now,
        }

        def put(tx: LedgerTransaction) -> bool:
            is_done = tx.change(f"trigger.{_EDITS[what]}", **facts) > 0
            if is_done:
                tx.tell("edited", now=now, facts={"agent": card.name, "what": what})
            return is_done

        return await self._write(put)

    async def file(
        self, trigger: Trigger, receipt: Receipt, *, text: str, now: datetime
    ) -> tuple[Filed, bool] | None:
        """Return the receipt of a key, and whether it is new; None: the trigger is not armed."""

        def put(tx: LedgerTransaction) -> tuple[Filed, bool] | None:
            listed = _entry_of(tx, trigger.id)
            if listed is None:
                return None
            known = tx.receipt_of(listed.number, receipt.key)
            if known is not None:
                return known, False
            filed = tx.add(listed.number, [receipt], now=now)
            if not filed:
                return None
            digest = _carry(tx, filed[0].number, text, now=now)
            return structs.replace(filed[0], digest=digest), True

        return await self._ledger.write(self._term, put)

    async def carry(
        self, receipt: int, text: str, status: Status, reason: Reason, *, now: datetime
    ) -> bool:
        """Replace the order of a receipt that has not started, and let it wait or hold it."""

        def put(tx: LedgerTransaction) -> bool:
            filed = tx.receipt(receipt)
            if filed is None or filed.status not in WAITS:
                return False
            is_moved = tx.move(filed, status, reason=reason, now=now)
            if is_moved:
                _carry(tx, receipt, text, now=now)
            return is_moved

        return await self._ledger.write(self._term, put)

    async def entry(self, trigger: str) -> Listed | None:
        return await self._ledger.read(lambda tx: _entry_of(tx, trigger))

    async def dispatches(
        self, trigger: str, *, limit: int, offset: int
    ) -> tuple[list[tuple[Filed, datetime | None]], int]:
        def look(tx: LedgerTransaction) -> tuple[list[tuple[Filed, datetime | None]], int]:
            listed = _entry_of(tx, trigger)
            if listed is None:
                return [], 0
            asked = {"entry": listed.number, "limit": limit, "offset": offset}

            def read(row: LedgerRow) -> tuple[Filed, datetime | None]:
                return tx.receipt_in(row), moment(row["started_at"])

            found = tx.every(read, "trigger.dispatches", **asked)
            return found, _count(tx, "count_dispatches", entry=listed.number)

        return await self._ledger.read(look)

    async def skip(self, receipt: int, *, reason: Reason, now: datetime) -> bool:
        def end(tx: LedgerTransaction) -> bool:
            filed = tx.receipt(receipt)
            return filed is not None and tx.finish(filed, Status.SKIPPED, reason=reason, now=now)

        return await self._ledger.write(self._term, end)

    async def spend(self, trigger: str, times: int, *, now: datetime) -> bool:
        """Disable a delay that has fired; False: it was enabled again, or is disabled."""
        return await self._put("spend", trigger, {"times": times}, now=now) is not None

    async def _put(
        self, query: str, trigger: str, given: Mapping[str, object], *, now: datetime
    ) -> Trigger | None:
        facts = {"id": plain(trigger), "now": now, **given}

        def put(tx: LedgerTransaction) -> Trigger | None:
            if not tx.change(f"trigger.{query}", **facts):
                return None
            if query == "change":
                tx.tell("edited", now=now, facts={"trigger": facts["name"], "what": "changed"})
            return _arm(tx, trigger, now=now)

        return await self._write(put)

    async def scan(self) -> Scan:
        """Return the triggers that have changed since the ledger read them, and the broken files.

        Returning all would undo concurrent changes.
        """

        def look(tx: LedgerTransaction) -> Scan:
            broken = self.broken_files

            def read(row: LedgerRow) -> tuple[Scanned, bool]:
                is_broken = broken is None or row["known_file"] in broken  # of this file
                known = row["known_broken"] if is_broken else None
                found = _scanned(row, known=known or "")
                return found, _is_known(tx, found, row)

            every = tx.every(read, "trigger.all")
            if _count(tx, "count_orphans"):  # these are missing
                return Scan(tuple(found for found, _ in every), broken=broken or {})
            new = (found for found, is_known in every if not is_known)
            return Scan(tuple(new), standing=("",), broken=broken or {})

        return await self._ledger.read(look)

    async def _found(self, query: str, make: Callable[[LedgerRow], T], **facts: object) -> list[T]:
        return await self._ledger.read(lambda tx: tx.every(make, f"trigger.{query}", **facts))

    async def _first(self, query: str, make: Callable[[LedgerRow], T], **facts: str) -> T | None:
        return next(iter(await self._found(query, make, **facts)), None)

    async def _write(self, work: Callable[[LedgerTransaction], T]) -> T:
        self._kinds.clear()
        try:
            return await self._ledger.write(self._term, work)
        finally:
            self._kinds.clear()


def _is_known(tx: LedgerTransaction, found: Scanned, row: LedgerRow) -> bool:
    mark, item = found.mark, found.item
    known = {"title": mark.title, "rule": mark.rule, "body": mark.body}
    if isinstance(item, Unarmed):
        known |= {"unarmed": item.reason}
    else:
        known |= {"digest": item.digest, "spec": tx.spec_of(item)}
    is_same = all(row[f"known_{name}"] == plain(value) for name, value in known.items())
    is_as_broken = found.broken == (row["known_broken"] or "")
    return is_same and is_as_broken and row["missing_at"] is None


def _scanned(row: LedgerRow, *, known: str = "") -> Scanned:
    try:
        return scanned(_trigger(row))._replace(broken=known)
    except (LookupError, TypeError, ValueError, AttributeError):
        address, name = f"trigger:{row['id']}", row["name"]
        reason = "the definition in the ledger cannot be read"
        item = Unarmed(address, Origin.of_trigger(name), name, reason)
        return Scanned(Mark(address, name, "", ""), item)


def _arm(tx: LedgerTransaction, trigger: str, *, now: datetime) -> Trigger:
    armed = tx.one(lambda row: (_trigger(row), _scanned(row)), "trigger.one", id=trigger)
    assert armed is not None, "it was just written"
    tx.scan(NAME, Scan((armed[1],), standing=("",)), now=now)  # no other trigger is scanned
    return armed[0]


def _carry(tx: LedgerTransaction, receipt: int, text: str, *, now: datetime) -> str:
    digest = digest_of(text)
    tx.keep_texts([(digest, text)], now=now)
    tx.change("trigger.carry", number=receipt, digest=digest)
    return digest


def _entry_of(tx: LedgerTransaction, trigger: str) -> Listed | None:
    rows = tx.rows_at(NAME, [f"trigger:{plain(trigger)}"])
    return tx.entry(rows[0]["number"]) if rows else None


def _count(tx: LedgerTransaction, query: str, **facts: int) -> int:
    return tx.one(lambda row: int(row[0]), f"trigger.{query}", **facts) or 0


def _trigger(row: LedgerRow) -> Trigger:
    data = json.loads(row["spec"])
    definition = TriggerDefinition.of(row["name"], data, is_enabled=bool(row["is_enabled"]))
    return Trigger(row["id"], definition, row["enabled_times"], **_stamps(row))


def _card(row: LedgerRow) -> AgentCard:
    data, name = json.loads(row["spec"]), row["name"].removeprefix(_AGENT)
    is_enabled = bool(row["is_enabled"])
    return AgentCard(name, data["config"], is_enabled, file=data["file"], **_stamps(row))


def _stamps(row: LedgerRow) -> dict[str, datetime]:
    return {name: moment(int(row[name])) for name in ("created_at", "updated_at")}


def _facts(definition: TriggerDefinition) -> dict[str, object]:
    return {
        "name": definition.name,
        "spec": compact(_plain(definition.data())),
        "is_enabled": int(definition.is_enabled),
    }


def _plain(data: Any) -> Any:
    if isinstance(data, str):
        return plain(data)
    if isinstance(data, dict):
        return {plain(str(name)): _plain(value) for name, value in data.items()}
    return [_plain(each) for each in data] if isinstance(data, list | tuple) else data
