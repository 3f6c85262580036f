"""Spending in the ledger: draws on purses, and balances.

Each function is one transaction that excludes other writes, so that of two runs only one gets the
rest of a purse.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from horae.core import entry as rules
from horae.core.budget import ALL, FORECAST, LAST, Balance, Drawn, Purse, Usage, balance
from horae.core.ports import SpentRun, micros, moment
from horae.core.receipt import Reason, ReasonCode, Status, is_planned
from horae.store.codec import read_agents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from horae.store.ledger import Transaction

_NEVER: Final = 1 << 62
_RECURS: Final = (rules.CronRule, rules.RepeaterRule, rules.CadenceRule)


def own(entry: int) -> str:
    return f"entry:{entry}"


def balances(
    tx: Transaction,
    purses: Sequence[Purse],
    *,
    now: datetime,
    entry: int,
    but: int = 0,
    is_exact: bool = False,
    through: tuple[datetime, int] | None = None,
) -> list[Balance]:
    """Return the balances without the run *but*; *is_exact*: runs in progress count as used.

    *through* is the end of a run, and its number: later ends do not count.
    """
    at, number = (_NEVER, 0) if through is None else (micros(through[0]), through[1])
    medians: dict[int, list[Usage]] = {}
    found = []
    for purse in purses:
        name, since = purse.of or own(entry), purse.period(now)[0]
        period = {"name": name, "since": since, "at": at, "last": number}
        drawn = tx.every(lambda row: Drawn(*row), "purse.drawn", **period, but=but)
        for each in {entry, *(each.entry for each in drawn)} - medians.keys():
            medians[each] = last(tx, each)
        usual = {} if is_exact else medians
        found.append(balance(purse, drawn, usual, entry=entry, now=now))
    return found


def last(tx: Transaction, entry: int, most: int = LAST) -> list[Usage]:
    return tx.every(lambda row: Usage(*row), "purse.last", name=own(entry), most=most)


def draw(
    tx: Transaction,
    number: int,
    purses: Sequence[Purse],
    *,
    now: datetime,  # noqa: ARG001 - every write has it
) -> list[Balance]:
    run = tx.run(number)
    filed = None if run is None else tx.receipt(run.receipt)
    if run is None or filed is None:
        return []
    # The period is that of its start.
    found = balances(tx, purses, now=run.started_at, entry=filed.entry, but=number)
    if all(each.has_room for each in found):
        put(tx, number, filed.entry, run.started_at, [each.of for each in purses if each.of])
    return found


def put(
    tx: Transaction, run: int, entry: int, started_at: datetime, names: Iterable[str] = ()
) -> None:
    for name in dict.fromkeys((ALL, own(entry), *names)):
        tx.change("purse.put", name=name, started_at=started_at, run=run)


def use(
    tx: Transaction,
    number: int,
    purses: Sequence[Purse],
    usage: Usage,
    *,
    now: datetime,  # noqa: ARG001
) -> list[Balance]:
    tx.change("purse.use", number=number, cost=usage.cost, tokens=usage.tokens)
    run = tx.run(number)
    filed = None if run is None else tx.receipt(run.receipt)
    if run is None or filed is None:
        return []
    return balances(tx, purses, now=run.started_at, entry=filed.entry, is_exact=True)


def refuse(tx: Transaction, number: int, found: Balance, *, now: datetime) -> bool:
    run, reason = tx.run(number), Reason(ReasonCode.BUDGET, found.words)
    if run is None or not tx.give_back(number, reason=reason, now=now):
        return False
    filed = tx.receipt(run.receipt)
    if filed is None:
        return False
    known = tx.entry(filed.entry)
    rule = known.item.rule if known is not None and isinstance(known.item, rules.Entry) else None
    recurs = is_planned(filed.receipt.key) and isinstance(rule, _RECURS)
    if recurs or filed.parent is not None or found.until is None:  # a parent waits for its end
        return tx.finish(filed, Status.SKIPPED, reason=reason, now=now)
    reason = Reason(ReasonCode.BUDGET, f"{reason}; held until {rules.key_time(found.until)}")
    return tx.move(filed, Status.HELD, reason=reason, now=now, start_at=found.until)


def try_again(tx: Transaction, *, now: datetime) -> list[int]:
    reason = Reason(ReasonCode.READY, "a new period of the budget has begun")
    numbers = [row[0] for row in tx.rows("purse.again", now=now)]
    return [each for each in numbers if tx.release(each, reason=reason, now=now)]


def costs(tx: Transaction, *, since: datetime, until: datetime) -> list[SpentRun]:
    return tx.every(_spent, "purse.costs", since=since, until=until)


def of_receipts(tx: Transaction, numbers: Iterable[int]) -> dict[int, Usage]:
    rows = tx.rows("purse.of_receipts", numbers=json.dumps([*numbers]))
    return {row[0]: Usage(row[1], row[2]) for row in rows}


def usual(tx: Transaction, entries: Iterable[int]) -> dict[int, list[Usage]]:
    return {each: last(tx, each, FORECAST) for each in entries}


def _spent(row: Any) -> SpentRun:
    at, cost, tokens, entry, title, agents = row
    return SpentRun(moment(at), cost, tokens, entry, title, read_agents(agents))
