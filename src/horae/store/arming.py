"""How an entry begins, pauses, resumes and ends; in none of these cases does anything past fire.

What came meanwhile is one receipt that says why, and the watermark is now. A delay alone stays
due until its key has a receipt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from horae.core import account
from horae.core.actor import ENGINE, by_words
from horae.core.budget import LONGEST
from horae.core.decide import Decision, begin, close
from horae.core.entry import CadenceRule, Entry, OnceRule, key_time
from horae.core.ports import micros, plain
from horae.core.receipt import Reason, ReasonCode, Status
from horae.store import spending
from horae.store.codec import filed_of, item_of, next_at, run_of

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from horae.core.ports import Listed
    from horae.store.ledger import Transaction


def pause(
    tx: Transaction, number: int, *, now: datetime, note: str = "", until: datetime | None = None
) -> int | None:
    """Let an entry rest, and return how many waiting receipts are skipped; None: it does not."""
    values = {"now": now, "note": plain(note), "until": until, "by": tx.actor}
    if not tx.change("entry.pause", number=number, **values):
        return None
    was = tx.entry(number)
    assert was is not None, "it was just paused"
    words = by_words("paused", note, actor=tx.actor)
    reason = Reason(ReasonCode.PAUSED, f"did not run before the entry was {words}")
    if isinstance(was.item, Entry) and _delay_of(was.item) is None:
        # These times are before the pause: without an engine, nothing has decided them yet.
        tx.account(was.item, close(was.item, now=now, reason=reason), now=now)
    skipped = tx.skip_pending(number, reason=reason, now=now)
    facts = {"note": note, "until": None if until is None else key_time(until)}
    tx.tell("paused", now=now, entry=number, facts=facts)
    return skipped


def resume(tx: Transaction, number: int, *, now: datetime) -> bool:
    """Let a paused entry go on from now, or from when its pause was over by itself."""
    was = tx.entry(number)
    if was is None or was.pause is None or not tx.change("entry.resume", number=number):
        return False
    again = tx.entry(number)
    if again is not None and isinstance(again.item, Entry):
        over = now if was.pause.until is None else min(now, was.pause.until)
        words = f"paused from {key_time(was.pause.at)} to {key_time(over)}"
        reason = Reason(ReasonCode.PAUSED, words)
        begin_afresh(tx, again.item, again.item, now=now, reason=reason, since=over)
    tx.tell("resumed", now=now, entry=number)
    return True


def wake(tx: Transaction, *, now: datetime) -> list[int]:
    held = spending.try_again(tx, now=now)
    return [*held, *(number for number in tx.rested(now=now) if resume(tx, number, now=now))]


def set_back(tx: Transaction, *, now: datetime) -> int:
    """Let the entries go on from now that go by a clock which ran ahead; return how many."""
    tx.change("purse.set_back", now=now, most=now + LONGEST)
    tx.change("account.set_back", now=now, most=now + account.LONGEST)
    rows = tx.rows("entry.ahead", now=now)
    if not rows:
        return 0
    tx.change("receipt.give_up_keys", now=now)
    tx.change("entry.pause_set_back", now=now)
    count = sum(_set_back(tx, row, now=now) for row in rows)
    if count:
        tx.tell("set_back", now=now, facts={"entries": count})
    return count


def close_the_past(tx: Transaction, *, now: datetime, reason: Reason) -> None:
    """Set every watermark to now and end all that is open, so that nothing past fires."""
    for was in tx.entries():
        if not isinstance(was.item, Entry) or was.gone_at is not None:
            continue
        closed = close(was.item, now=now, reason=reason)
        # For the end to count from, of those that wait for one that will not come.
        begun = beginning(
            replace(was.item, accounted_to=closed.accounted_to, ended_at=closed.ended_at), now=now
        )
        tx.account(was.item, replace(closed, ended_at=begun.ended_at), now=now)
    for filed in tx.every(filed_of, "receipt.open"):
        run = tx.one(run_of, "run.open_of_receipt", receipt=filed.number)
        if filed.status is Status.RUNNING and run is not None:
            # Without a retry: what it did since the backup is not known.
            tx.finish(filed, Status.INTERRUPTED, reason=reason, now=now)
            tx.close_run(run.number, outcome=Status.INTERRUPTED, reason=reason, now=now)
            continue
        if run is not None:
            tx.give_back(run.number, reason=reason, now=now)
        waiting = tx.receipt(filed.number)
        assert waiting is not None, "it was just listed"
        tx.finish(waiting, Status.SKIPPED, reason=reason, now=now)


def end_rule(tx: Transaction, was: Listed, *, now: datetime, reason: Reason) -> None:
    """Account for an entry up to now without firing, and skip what waits of it."""
    if isinstance(was.item, Entry):
        tx.account(was.item, close(was.item, now=now, reason=reason), now=now)
    tx.skip_pending(was.number, reason=reason, now=now)


def begin_afresh(
    tx: Transaction,
    old: Entry | None,
    new: Entry,
    *,
    now: datetime,
    reason: Reason,
    since: datetime | None = None,
) -> None:
    """Close the old rule with one receipt and begin the new one, now or *since* a moment."""
    # One delay stays the same, perhaps with another time.
    if old is not None and (_delay_of(old) is None or _delay_of(old) != _delay_of(new)):
        closed = close(old, now=since or now, reason=reason)
        tx.account(old, closed, now=now)
        new = replace(new, accounted_to=closed.accounted_to, ended_at=closed.ended_at)
    begin_rule(tx, new, now=now, since=since)


def begin_rule(
    tx: Transaction, entry: Entry, *, now: datetime, since: datetime | None = None
) -> None:
    """Begin a rule; its watermark only goes forward, save for a delay that was never kept."""
    begun = beginning(entry, now=since or now)
    accounted_to = begun.accounted_to
    was = entry.accounted_to
    if was is not None and accounted_to is not None and not _is_still_due(tx, entry):
        accounted_to = max(was, accounted_to)
    tx.account(entry, Decision(begun.receipts, accounted_to, begun.ended_at), now=now)


def beginning(entry: Entry, *, now: datetime) -> Decision:
    """Return what to write when a rule begins; a cadence that waits for no end counts from now."""
    begun = begin(entry, now=now)
    if isinstance(entry.rule, CadenceRule):
        after = replace(entry, accounted_to=begun.accounted_to, ended_at=begun.ended_at)
        if next_at(after) is None:
            return replace(begun, ended_at=begun.accounted_to)
    return begun


def first_seen(tx: Transaction, entry: Entry, *, now: datetime) -> Decision:
    """Return what to write about an entry that is new to the ledger.

    One that was begun in place of a lost one cannot tell what was missed from what has run.
    """
    begun = beginning(entry, now=now)
    fresh_at = tx.fresh_at() if begun.receipts else None
    if fresh_at is None:
        return begun
    words = f"not known whether it ran: the ledger was newly created at {key_time(fresh_at)}"
    reason = Reason(ReasonCode.LEDGER_NEW, words)
    receipts = [
        replace(each, status=Status.SKIPPED, reason=reason) if each.planned_at <= fresh_at else each
        for each in begun.receipts
    ]
    return replace(begun, receipts=tuple(receipts))


def _delay_of(entry: Entry) -> str | None:
    """Return the id of a delay, which is due until its key has a receipt."""
    return entry.rule.delay if isinstance(entry.rule, OnceRule) else None


def pause_if_failing(tx: Transaction, number: int, *, now: datetime) -> None:
    was = tx.entry(number)
    if was is None or not isinstance(was.item, Entry) or not was.is_armed:
        return
    most = was.item.policy.pause_after
    if most is not None and was.failures >= most:
        times = "once" if was.failures == 1 else f"{was.failures} times in a row"
        caller, tx.actor = tx.actor, ENGINE
        pause(tx, number, now=now, note=f"failed {times}")
        tx.actor = caller


def _set_back(tx: Transaction, row: sqlite3.Row, *, now: datetime) -> bool:
    """Let one entry go on from now, unless it is a delay that was kept."""
    item = item_of(row)
    if not isinstance(item, Entry):
        most, ended = micros(now), row["ended_at"]
        ended = None if ended is None else min(ended, most)
        values = {"accounted_to": min(row["accounted_to"], most), "ended_at": ended}
        tx.change("entry.account", number=row["number"], next_at=None, **values)
        return True
    if _delay_of(item) is not None:
        if not _is_still_due(tx, item):
            return False
        begun = begin(replace(item, accounted_to=None), now=now)
        tx.account(item, begun, now=now)
        return True
    since, ended_at = item.accounted_to, item.ended_at
    assert since is not None, "a row has a watermark"
    end_at = None if ended_at is None else min(ended_at, now)
    tx.account(item, Decision((), min(since, now), end_at), now=now)
    return True


def _is_still_due(tx: Transaction, entry: Entry) -> bool:
    """Tell whether an entry is a delay whose key has no receipt."""
    delay = _delay_of(entry)
    return delay is not None and tx.receipt_of(entry.number, f"delay:{delay}") is None
