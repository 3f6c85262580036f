"""Triggers and agents in the ledger's own tables, and the triggers as a source of entries.

What changes a trigger also changes its entry, in one transaction: it is armed, or rests, when
the change is kept, however many others there are. A delay that has come to its end is
disabled; each time it is enabled again it may fire once more, under a key of its own.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from horae.core.decide import Status
from horae.core.entry import Origin, Unarmed
from horae.core.identity import Mark
from horae.core.ports import PATIENCE, LedgerError
from horae.core.reason import Reason, ReasonCode
from horae.core.receipt import FINAL
from horae.core.source import Scan, Scanned
from horae.sources.triggers.rules import Definition, Kind, Trigger, checked, scanned
from horae.sources.triggers.service import AgentCard, Dispatched
from horae.store import scanning
from horae.store.arming import end_rule
from horae.store.codec import compact, micros, moment, plain, write_entry
from horae.store.rows import filed_of
from horae.store.sql import theme

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from horae.core.decide import Receipt
    from horae.core.ports import Filed, Listed
    from horae.store.book import Book
    from horae.store.ledger import BookLedger

T = TypeVar("T")

NAME: Final = "trigger"
_SQL: Final = theme("trigger")
_DONE: Final = {"add": "added", "change_agent": "changed", "remove_agent": "removed"}
_AGENT: Final = "agent:"
_OWN: Final = ".agentd/"  # what the names of the files in a plan root begin with


class BookTriggers:
    """Triggers and agents beside the ledger, on SQLite and on PostgreSQL."""

    def __init__(self, ledger: BookLedger, *, term: int = 1) -> None:
        self._ledger = ledger
        self._term = term
        self._kinds: dict[Kind, list[Trigger]] = {}  # what was asked for since the last change
        # Which files of triggers cannot be used, and why; None: they were not read yet.
        self.broken_files: Mapping[str, str] | None = None

    async def page(self, *, limit: int, offset: int) -> tuple[list[Trigger], int]:
        """Return some triggers, newest first, and how many there are in all."""

        def look(book: Book) -> tuple[list[Trigger], int]:
            rows = book.execute(_SQL["page"], {"limit": limit, "offset": offset})
            found = [_trigger(row) for row in rows]
            return found, int(book.execute(_SQL["count"]).fetchone()[0])

        return await self._ledger.read(look)

    async def get(self, trigger: str) -> Trigger | None:
        return await self._one("one", {"id": plain(trigger)})

    async def named(self, name: str) -> Trigger | None:
        if name.startswith(_AGENT):
            return None
        return await self._one("by_name", {"name": plain(name)})

    async def of_kind(self, kind: Kind) -> list[Trigger]:
        """Return the enabled triggers of a kind, the longest known first."""
        # Asked for after every receipt that ends, and nearly always the same.
        if kind not in self._kinds:
            found = await self._with_text(compact({"type": kind.value})[1:-1])
            self._kinds[kind] = [
                each
                for each in found
                if each.definition.is_enabled and each.definition.kind is kind
            ]
        return self._kinds[kind]

    async def webhooks(self) -> list[Trigger]:
        """Return the triggers that wait for a message, those that are disabled, too."""
        found = await self._with_text(compact({"type": Kind.WEBHOOK.value})[1:-1])
        return [each for each in found if each.definition.kind is Kind.WEBHOOK]

    async def of_agent(self, agent: str) -> list[Trigger]:
        """Return the triggers that start an agent, the longest known first."""
        found = await self._with_text(compact({"agent": agent})[1:-1])
        return [each for each in found if each.definition.agent == agent]

    async def of_files(self) -> list[Trigger]:
        found = await self._with_text('"file":')
        return [each for each in found if each.definition.file]

    async def insert(self, trigger: str, definition: Definition, *, now: datetime) -> bool:
        """Take in a trigger and arm it; False means that its id or its name is taken."""
        facts = {**_facts(trigger, definition), "now": micros(now)}

        def put(book: Book) -> bool:
            is_new = book.execute(_SQL["add"], facts).rowcount > 0
            if is_new:
                _arm(book, trigger, now=now)
            return is_new

        return await self._write(put)

    async def change(
        self, was: Trigger, definition: Definition, *, now: datetime
    ) -> Trigger | None:
        """Let a trigger be another; None: somebody changed it meanwhile, or the name is taken."""
        is_again = definition.is_enabled and not was.definition.is_enabled
        # Never the same stamp twice, so that two changes in one instant are told apart.
        stamp = max(micros(now), micros(was.updated_at) + 1)
        facts = {
            **_facts(was.id, definition),
            "times": was.times + is_again,
            "now": stamp,
            "was_updated_at": micros(was.updated_at),
            "was_times": was.times,
            "was_enabled": int(was.definition.is_enabled),
        }

        def put(book: Book) -> Trigger | None:
            if not book.execute(_SQL["change"], facts).rowcount:
                return None
            told = {"trigger": definition.name, "what": "changed"}
            book.tell("edited", now=now, facts=told)
            return _arm(book, was.id, now=now)

        return await self._write(put)

    async def remove(self, trigger: str, *, now: datetime) -> bool:
        """Forget a trigger; what it did stays in the ledger."""

        def drop(book: Book) -> bool:
            if not book.execute(_SQL["remove"], {"id": trigger}).rowcount:
                return False
            was = _entry_of(book, trigger)
            if was is not None and was.gone_at is None:
                reason = Reason(ReasonCode.ENTRY_REMOVED, "the workflow was removed")
                end_rule(book, was, now=now, reason=reason)
                book.mark_gone(was.number, now=now)
                facts = {"address": was.mark.address, "title": was.mark.title}
                book.tell("entry_gone", now=now, entry=was.number, facts=facts)
            return True

        return await self._write(drop)

    async def agents(self) -> list[AgentCard]:
        """Return every agent, newest first."""
        return await self._ledger.read(
            lambda book: [_card(row) for row in book.execute(_SQL["agents"])]
        )

    async def agent(self, word: str) -> AgentCard | None:
        """Return the agent of a name or an id."""
        facts = {"name": f"{_AGENT}{plain(word)}", "id": plain(word)}

        def look(book: Book) -> AgentCard | None:
            row = book.execute(_SQL["agent"], facts).fetchone()
            return None if row is None else _card(row)

        return await self._ledger.read(look)

    async def insert_agent(self, card: AgentCard) -> bool:
        """Take in an agent; False means that its name is taken."""
        facts = {"id": card.id, **_agent_facts(card), "now": micros(card.created_at)}
        return await self._edit_agent("add", facts, card.name, now=card.created_at)

    async def change_agent(self, card: AgentCard) -> bool:
        """Let an agent be another; False means that there is none."""
        facts = {**_agent_facts(card), "now": micros(card.updated_at)}
        return await self._edit_agent("change_agent", facts, card.name, now=card.updated_at)

    async def remove_agent(self, name: str, *, now: datetime) -> bool:
        return await self._edit_agent("remove_agent", {"name": f"{_AGENT}{name}"}, name, now=now)

    async def _edit_agent(
        self, query: str, facts: Mapping[str, object], name: str, *, now: datetime
    ) -> bool:
        """Add, change or remove an agent, and tell of it; False: nothing was changed."""

        def put(book: Book) -> bool:
            is_done = book.execute(_SQL[query], facts).rowcount > 0
            if is_done:
                book.tell("edited", now=now, facts={"agent": name, "what": _DONE[query]})
            return is_done

        return await self._write(put)

    async def file(
        self, trigger: Trigger, receipt: Receipt, *, text: str, now: datetime
    ) -> tuple[Filed, bool] | None:
        """File what was asked of a trigger, with the order that it is to carry out."""

        def put(book: Book) -> tuple[Filed, bool] | None:
            listed = _entry_of(book, trigger.id)
            if listed is None:
                return None
            known = book.receipt_of(listed.number, receipt.key)
            if known is not None:
                return known, False
            filed = book.add(listed.number, [receipt], now=now, parent=None)
            if not filed:
                return None
            digest = _carry(book, filed[0].number, text, now=now)
            return replace(filed[0], digest=digest), True

        return await self._ledger.write(self._term, put)

    async def carry(
        self, receipt: int, text: str, *, status: Status, reason: Reason, now: datetime
    ) -> bool:
        """Let a receipt that has not started carry out another order, and wait or be held."""

        def put(book: Book) -> bool:
            filed = book.receipt(receipt)
            if filed is None or filed.status not in {Status.WAITING, Status.HELD}:
                return False
            is_moved = book.move(filed, status, reason=reason, now=now)
            if is_moved:
                _carry(book, receipt, text, now=now)
            return is_moved

        return await self._ledger.write(self._term, put)

    async def entry(self, trigger: str) -> Listed | None:
        """Return what the ledger knows of a trigger."""
        return await self._ledger.read(lambda book: _entry_of(book, trigger))

    async def dispatches(
        self, trigger: str, *, limit: int, offset: int
    ) -> tuple[list[Dispatched], int]:
        """Return what a trigger did, newest first, and how often it did something."""

        def look(book: Book) -> tuple[list[Dispatched], int]:
            listed = _entry_of(book, trigger)
            if listed is None:
                return [], 0
            asked = {"entry": listed.number, "limit": limit, "offset": offset}
            rows = book.execute(_SQL["dispatches"], asked)
            found = [Dispatched(filed_of(row), moment(row["started_at"])) for row in rows]
            return found, int(book.execute(_SQL["count_dispatches"], asked).fetchone()[0])

        return await self._ledger.read(look)

    async def skip(self, receipt: int, *, reason: Reason, now: datetime) -> bool:
        """Let a receipt that waits or is held never start."""

        def end(book: Book) -> bool:
            filed = book.receipt(receipt)
            return filed is not None and book.finish(filed, Status.SKIPPED, reason=reason, now=now)

        return await self._ledger.write(self._term, end)

    async def spend(self, trigger: str, times: int, *, now: datetime) -> bool:
        """Disable a delay that has fired; False: it was enabled again, or is disabled."""
        facts = {"id": trigger, "times": times, "now": micros(now)}

        def put(book: Book) -> bool:
            is_spent = book.execute(_SQL["spend"], facts).rowcount > 0
            if is_spent:
                _arm(book, trigger, now=now)
            return is_spent

        return await self._write(put)

    async def _one(self, query: str, facts: Mapping[str, object]) -> Trigger | None:
        def look(book: Book) -> Trigger | None:
            row = book.execute(_SQL[query], facts).fetchone()
            return None if row is None else _trigger(row)

        return await self._ledger.read(look)

    async def _with_text(self, text: str) -> list[Trigger]:
        """Return the triggers whose definition holds a text."""
        return await self._ledger.read(
            lambda book: [_trigger(row) for row in book.execute(_SQL["with_text"], {"text": text})]
        )

    async def _write(self, work: Callable[[Book], T]) -> T:
        """Change a definition; what was remembered of them is forgotten, before and after."""
        self._kinds.clear()
        try:
            return await self._ledger.write(self._term, work)
        finally:
            self._kinds.clear()


class TriggerSource:
    """The triggers of a ledger; one that is disabled is known and not armed.

    *follow* is told of every receipt that is over, for the triggers that wait for such ends.
    *has_files* tells whether the plan root holds files of triggers.
    """

    name = NAME

    def __init__(
        self,
        ledger: BookLedger,
        *,
        term: int = 1,
        triggers: BookTriggers | None = None,
        follow: Callable[[Filed], Awaitable[None]] | None = None,
        has_files: Callable[[], bool] | None = None,
    ) -> None:
        self._ledger = ledger
        self._triggers = triggers or BookTriggers(ledger, term=term)
        self._follow = follow
        self._has_files = has_files

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - there are no files
        """Return every trigger; while they cannot be read, what is known of them stands."""
        try:
            found = await self._ledger.read(partial(_scan, self._triggers.broken_files))
            return replace(found, is_bare=await self._is_bare())
        except LedgerError as error:
            return Scan((), standing=("",), problems=(error,))

    async def _is_bare(self) -> bool | None:
        """Tell whether the plan root's own files that made triggers are gone.

        Those that were applied from elsewhere go on without a file.
        """
        if self._has_files is None:
            return None
        if await asyncio.to_thread(self._has_files):
            return False
        made = await self._triggers.of_files()
        own = [each.definition for each in made if each.definition.file.startswith(_OWN)]
        return True if any(each.is_enabled for each in own) else None

    async def settle(self, receipt: Filed) -> None:
        """Disable a delay that has come to its end, and tell those who wait for such an end."""
        if receipt.status not in FINAL:
            return
        if self._follow is not None:
            await self._follow(receipt)
        key = receipt.receipt.key
        if not key.startswith("delay:"):
            return
        name, _, times = key.removeprefix("delay:").partition(":")
        ended_at = receipt.ended_at or receipt.decided_at
        await self._triggers.spend(name, int(times or 1), now=ended_at)


async def add(
    ledger: BookLedger,
    trigger: str,
    *,
    name: str,
    spec: Mapping[str, str],
    now: datetime,
    term: int,
    is_enabled: bool = True,
) -> bool:
    """Take in a trigger without asking about its agent; False: its id or its name is taken.

    *spec* is `{"kind": "cron", "cron_expr": …, "timezone": …}` or `{"kind": "delay", "run_at":
    …}`, each with "agent" and "prompt"; one that can never fire raises an error.
    """
    names = {"kind": "type", "cron_expr": "expression", "timezone": "timezone", "run_at": "run_at"}
    config = {names[key]: value for key, value in spec.items() if key in names}
    definition = Definition(
        name, spec.get("agent", ""), config, spec.get("prompt", ""), is_enabled=is_enabled
    )
    triggers = BookTriggers(ledger, term=term)
    return await triggers.insert(trigger, checked(definition), now=now)


def _scan(broken: Mapping[str, str] | None, book: Book) -> Scan:
    """Return the triggers that the ledger does not know as they are, and the *broken* files.

    Whoever changes a trigger arms it at the same time, so there are hardly any. To tell of all
    would undo what is changed while this scan is on its way into the ledger.
    """
    rows = book.execute(_SQL["all"]).fetchall()
    every = [(_scanned(row, known=_still_broken(row, broken)), row) for row in rows]
    if book.execute(_SQL["count_orphans"]).fetchone()[0]:
        return Scan(tuple(found for found, _ in every), broken=broken or {})  # these are missed
    new = (found for found, row in every if not _is_known(found, row))
    return Scan(tuple(new), standing=("",), broken=broken or {})


def _still_broken(row: sqlite3.Row, broken: Mapping[str, str] | None) -> str:
    """Return why the ledger knows a trigger as broken, if its file still is."""
    is_so = broken is None or row["known_file"] in broken
    return (row["known_broken"] or "") if is_so else ""


def _is_known(found: Scanned, row: sqlite3.Row) -> bool:
    mark, item = found.mark, found.item
    known = {"title": mark.title, "rule": mark.rule, "body": mark.body}
    if isinstance(item, Unarmed):
        known |= {"unarmed": item.reason}
    else:
        known |= {"digest": item.digest, "spec": write_entry(item)}
    is_same = all(row[f"known_{name}"] == plain(value) for name, value in known.items())
    is_as_broken = found.broken == (row["known_broken"] or "")
    return is_same and is_as_broken and row["missing_at"] is None


def _scanned(row: sqlite3.Row, *, known: str = "") -> Scanned:
    """Return a row as an entry; one that cannot be understood says so and stops no other.

    *known* is why its file is known to be broken.
    """
    try:
        return replace(scanned(_trigger(row)), broken=known)
    except (LookupError, TypeError, ValueError, AttributeError):
        address, name = f"trigger:{row['id']}", row["name"]
        reason = "the definition in the ledger cannot be read"
        item = Unarmed(address, Origin(f"triggers/{name}", 1), name, reason)
        return Scanned(Mark(address, name, "", ""), item)


def _arm(book: Book, trigger: str, *, now: datetime) -> Trigger:
    """Let the ledger take over one trigger as it is now, and leave all others alone."""
    row = book.execute(_SQL["one"], {"id": trigger}).fetchone()
    scan = Scan((_scanned(row),), standing=("",))
    scanning.scan(book, NAME, scan, now=now, revision=None, patience=PATIENCE)
    return _trigger(row)


def _carry(book: Book, receipt: int, text: str, *, now: datetime) -> str:
    """Let a receipt carry out a text, and return the text's digest."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    book.keep_text(digest, text, now=now)
    book.execute(_SQL["carry"], {"number": receipt, "digest": digest})
    return digest


def _entry_of(book: Book, trigger: str) -> Listed | None:
    rows = book.rows_at(NAME, [f"trigger:{plain(trigger)}"])
    return book.entry(rows[0]["number"]) if rows else None


def _trigger(row: sqlite3.Row) -> Trigger:
    data = json.loads(row["spec"])
    definition = Definition.of(row["name"], data, is_enabled=bool(row["is_enabled"]))
    stamps = {name: moment(int(row[name])) for name in ("created_at", "updated_at")}
    return Trigger(row["id"], definition, row["enabled_times"], **stamps)


def _card(row: sqlite3.Row) -> AgentCard:
    data = json.loads(row["spec"])
    stamps = {name: moment(int(row[name])) for name in ("created_at", "updated_at")}
    name = row["name"].removeprefix(_AGENT)
    return AgentCard(name, data["config"], bool(row["is_enabled"]), file=data["file"], **stamps)


def _facts(trigger: str, definition: Definition) -> dict[str, object]:
    return {
        "id": plain(trigger),
        "name": definition.name,
        "spec": compact(_plain(definition.data())),
        "is_enabled": int(definition.is_enabled),
    }


def _agent_facts(card: AgentCard) -> dict[str, object]:
    data = {"config": card.config, "file": card.file}
    return {
        "name": f"{_AGENT}{card.name}",
        "spec": compact(_plain(data)),
        "is_enabled": int(card.is_enabled),
    }


def _plain(data: Any) -> Any:
    """Return data of which every text can be written down."""
    if isinstance(data, str):
        return plain(data)
    if isinstance(data, dict):
        return {plain(str(name)): _plain(value) for name, value in data.items()}
    return [_plain(each) for each in data] if isinstance(data, list | tuple) else data
