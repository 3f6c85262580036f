"""The triggers as a source: what was asked for through the API, kept in the ledger's own file.

A trigger is a cron expression or a delay, an agent, and the prompt that it is given. A
delay fires once and is then disabled; each time it is enabled again it may fire once more,
under a key of its own.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.engine.ports import LedgerError
from horae.engine.source import Scan
from horae.errors import Exit, HoraeError
from horae.kernel.plan import is_id
from horae.rules.armed import Scanned
from horae.rules.entry import CatchUp, CronRule, Entry, OnceRule, Origin, Policy, Unarmed, Work
from horae.rules.identity import Mark
from horae.rules.receipt import FINAL
from horae.store.codec import compact, micros, plain
from horae.store.sql import queries
from horae.timing.cron import Cron
from horae.timing.rfc3339 import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from horae.engine.ports import Filed
    from horae.rules.entry import Rule
    from horae.store.book import Book
    from horae.store.sqlite import SqliteLedger

_SQL: Final = queries("""
-- name: all
-- Every trigger, the longest known first.
SELECT id, name, spec, is_enabled, enabled_times FROM trigger ORDER BY created_at, id;

-- name: add
-- A new trigger, unless its id or its name is taken.
INSERT INTO trigger (id, name, spec, is_enabled, enabled_times, created_at, updated_at)
VALUES (:id, :name, :spec, :is_enabled, :is_enabled, :now, :now)
ON CONFLICT DO NOTHING;

-- name: enable
-- Count how often it was enabled: each time a delay has a key of its own.
UPDATE trigger SET is_enabled = 1, enabled_times = enabled_times + 1, updated_at = :now
WHERE id = :id AND is_enabled = 0;

-- name: disable
-- Let it rest.
UPDATE trigger SET is_enabled = 0, updated_at = :now WHERE id = :id AND is_enabled = 1;

-- name: spend
-- Disable a delay that has fired, unless it was enabled again since.
UPDATE trigger SET is_enabled = 0, updated_at = :now
WHERE id = :id AND is_enabled = 1 AND enabled_times = :times;
""")


class TriggerError(HoraeError):
    """A trigger that asks for something that cannot be."""

    code = "trigger"
    exit_code = Exit.USAGE

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"trigger: {field} {reason}")


class TriggerSource:
    """The triggers of a ledger; one that is disabled is known and not armed."""

    name = "trigger"

    def __init__(self, ledger: SqliteLedger, *, term: int = 1) -> None:
        self._ledger = ledger
        self._term = term

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - there are no files
        """Return every trigger; while they cannot be read, what is known of them stands."""
        try:
            rows = await self._ledger.read(_rows)
        except LedgerError as error:
            return Scan((), standing=("",), problems=(error,))
        return Scan(tuple(_scanned(*row) for row in rows))

    async def settle(self, receipt: Filed) -> None:
        """Disable a delay that has come to its end; one that was enabled again is another."""
        key = receipt.receipt.key
        if not key.startswith("delay:") or receipt.status not in FINAL:
            return
        name, _, times = key.removeprefix("delay:").partition(":")
        ended_at = receipt.ended_at or receipt.decided_at
        facts = {"id": name, "times": int(times or 1), "now": micros(ended_at)}
        await self._ledger.write(self._term, lambda book: _changes(book, "spend", facts))


async def add(
    ledger: SqliteLedger,
    trigger: str,
    *,
    name: str,
    spec: Mapping[str, str],
    now: datetime,
    term: int,
    is_enabled: bool = True,
) -> bool:
    """Take in a trigger; False means that its id or its name is taken.

    *spec* is `{"kind": "cron", "cron_expr": …, "timezone": …}` or `{"kind": "delay", "run_at":
    …}`, each with "agent" and "prompt"; one that can never fire raises an error.
    """
    for field, text in (("id", trigger), ("name", name)):
        if not is_id(text):
            raise TriggerError(field, f"{text[:64]!r} is not a word of letters, digits and .-_")
    _rule(spec, trigger)
    _agent(spec)
    facts = {
        "id": trigger,
        "name": name,
        "spec": compact({key: plain(value) for key, value in spec.items()}),
        "is_enabled": int(is_enabled),
        "now": micros(now),
    }
    return await ledger.write(term, lambda book: _changes(book, "add", facts))


async def enable(ledger: SqliteLedger, trigger: str, *, now: datetime, term: int) -> bool:
    """Let a trigger fire again; False means that there is none, or it is enabled."""
    facts = {"id": trigger, "now": micros(now)}
    return await ledger.write(term, lambda book: _changes(book, "enable", facts))


async def disable(ledger: SqliteLedger, trigger: str, *, now: datetime, term: int) -> bool:
    """Let a trigger rest; False means that there is none, or it rests."""
    facts = {"id": trigger, "now": micros(now)}
    return await ledger.write(term, lambda book: _changes(book, "disable", facts))


def _rows(book: Book) -> list[tuple[str, str, str, int, int]]:
    """Return every trigger as it is written down."""
    return [tuple(row) for row in book.execute(_SQL["all"])]


def _changes(book: Book, query: str, facts: Mapping[str, object]) -> bool:
    """Tell whether a change found its trigger."""
    return book.execute(_SQL[query], facts).rowcount > 0


# A scan meets every trigger, and nearly all of them as they were.
@lru_cache(maxsize=8192)
def _scanned(trigger: str, name: str, written: str, is_enabled: int, times: int) -> Scanned:
    """Return a trigger, armed or with the reason why not."""
    address, origin = f"trigger:{trigger}", Origin(f"triggers/{name}", 1)
    spec = _spec(written)
    prompt = spec.get("prompt", "")
    digest = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    delay = trigger if times <= 1 else f"{trigger}:{times}"
    mark = Mark(address, name, _rule_text(spec, delay), digest)
    try:
        rule, agent = _rule(spec, delay), _agent(spec)
    except HoraeError as error:
        return Scanned(mark, Unarmed(address, origin, name, str(error)), prompt)
    if not is_enabled:
        return Scanned(mark, Unarmed(address, origin, name, "it is disabled"), prompt)
    is_cron = isinstance(rule, CronRule)
    entry = Entry(
        address,
        origin,
        name,
        rule,
        work=Work.PROMPT,
        agents=(agent,),
        policy=Policy(catchup=CatchUp.NONE) if is_cron else Policy(),
        zone=spec.get("timezone", "UTC") if is_cron else "UTC",
        digest=digest,
    )
    return Scanned(mark, entry, prompt)


def _spec(written: str) -> dict[str, str]:
    """Return what a trigger asks for; what is no text in it is not there for us."""
    try:
        spec = json.loads(written)
    except ValueError:
        return {}
    if not isinstance(spec, dict):
        return {}
    return {key: value for key, value in spec.items() if isinstance(value, str)}


def _agent(spec: Mapping[str, str]) -> str:
    """Return whom a trigger asks."""
    agent = spec.get("agent", "")
    if not is_id(agent):
        raise TriggerError("agent", f"{agent[:64]!r} is no name" if agent else "is missing")
    return agent


def _rule(spec: Mapping[str, str], delay: str) -> Rule:
    """Return the rule of a trigger; *delay* is what a delay goes by."""
    match spec:
        case {"kind": "cron", "cron_expr": expression}:
            cron = Cron(expression, zone=spec.get("timezone", "UTC"))
            if cron.never:
                raise TriggerError("cron_expr", f"{expression!r} names a day that never comes")
            return CronRule((cron,))
        case {"kind": "delay", "run_at": run_at}:
            return OnceRule(parse_rfc3339(run_at), delay)
    raise TriggerError("kind", "is cron with a cron_expr, or delay with a run_at")


def _rule_text(spec: Mapping[str, str], delay: str) -> str:
    """Return a trigger's when as it is written; a delay that is enabled again is a new one."""
    if spec.get("kind") == "delay":
        return f"at {spec.get('run_at', '')} ({delay})"
    return spec.get("cron_expr", "")
