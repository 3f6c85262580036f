"""How a ledger takes over what a source holds: what is new, changed, moved, gone, back.

In none of these cases does anything past fire. What came while nobody kept an entry is
one receipt that says why, and its watermark is now. A delay alone stays due: it has no
other moment, and if that has no receipt it has not been kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from horae.rules.entry import Entry, OnceRule, key_time
from horae.rules.identity import Known, Mark, match
from horae.rules.misfire import Decision, Status, begin, close
from horae.store.book import listed, numbered
from horae.store.codec import clock_of, plain, write_entry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from datetime import datetime

    from horae.engine.ports import Listed
    from horae.rules.armed import Scanned
    from horae.rules.entry import Unarmed
    from horae.store.book import Book


def scan(
    book: Book, source: str, scanned: Sequence[Scanned], *, now: datetime, commit: str | None
) -> list[Entry]:
    """Take over what a source holds now, and return the entries that may fire."""
    rows = {row["number"]: row for row in book.rows_of(source)}
    marks = [_plain_mark(each.mark) for each in scanned]
    addresses = {mark.address for mark in marks}
    # One that went long ago may come back to its place, but is not to be taken for another.
    known = [
        Known(number, _mark(row))
        for number, row in rows.items()
        if row["gone_at"] is None or row["address"] in addresses
    ]
    found = match(known, marks)
    doubles = set(found.doubles)
    armed = []
    for place, (each, mark, number) in enumerate(zip(scanned, marks, found.numbers, strict=True)):
        if place in doubles:
            continue
        if number is None:
            entry = _arrive(book, source, mark, each.item, now=now, commit=commit)
        else:
            entry = _stay(book, rows[number], mark, each.item, now=now, commit=commit)
        if entry is not None:
            armed.append(entry)
    for number in found.gone:
        if rows[number]["gone_at"] is None:
            _leave(book, listed(rows[number]), now=now)
    return armed


def pause(book: Book, number: int, *, now: datetime, note: str, until: datetime | None) -> bool:
    """Let an entry rest; what waits of it is skipped."""
    if not book.pause(number, now=now, note=note, until=until):
        return False
    was = book.entry(number)
    assert was is not None, "it was just paused"
    reason = f"it is paused: {note}" if note else "it is paused"
    _close(book, was, now=now, reason=reason)
    facts = {"note": note, "until": None if until is None else key_time(until)}
    book.tell("paused", now=now, entry=number, facts=facts)
    return True


def resume(book: Book, number: int, *, now: datetime) -> bool:
    """Let a resting entry go on from now."""
    was = book.entry(number)
    if was is None or was.pause is None or not book.resume(number):
        return False
    if isinstance(was.item, Entry):
        reason = f"it was paused from {key_time(was.pause.at)} to {key_time(now)}"
        _afresh(book, was.item, was.item, now=now, reason=reason)
    book.tell("resumed", now=now, entry=number)
    return True


def close_the_past(book: Book, *, now: datetime, reason: str) -> None:
    """Set every watermark to now and end all that is open, so that nothing past fires."""
    for was in book.entries(None):
        if not isinstance(was.item, Entry) or was.gone_at is not None:
            continue
        closed = close(was.item, now=now, reason=reason)
        # For the end to count from, of those that wait for one that will not come.
        begun = begin(
            replace(was.item, accounted_to=closed.accounted_to, ended_at=closed.ended_at), now=now
        )
        book.account(was.item, replace(closed, ended_at=begun.ended_at), now=now)
    for filed in book.open_receipts():
        run = book.open_run_of(filed.number)
        if filed.status is Status.RUNNING and run is not None:
            # Without a retry: what it did since the backup is not known.
            book.move(filed, Status.INTERRUPTED, reason=reason, now=now)
            book.close_run(run.number, outcome=Status.INTERRUPTED, reason=reason, now=now)
            continue
        if run is not None:
            book.give_back(run.number, reason=reason, now=now)
        book.move_number(filed.number, Status.SKIPPED, reason=reason, now=now)


def _arrive(
    book: Book,
    source: str,
    mark: Mark,
    item: Entry | Unarmed,
    *,
    now: datetime,
    commit: str | None,
) -> Entry | None:
    """Take in a new entry."""
    number = book.insert_entry(_facts(mark, item, commit), source=source, now=now)
    facts = {"address": mark.address, "title": mark.title, "rule": mark.rule}
    book.tell("entry_new", now=now, entry=number, facts=facts)
    if not isinstance(item, Entry):
        return None
    return _begun(book, replace(item, number=number, ended_at=None), now=now)


def _stay(
    book: Book,
    row: sqlite3.Row,
    mark: Mark,
    item: Entry | Unarmed,
    *,
    now: datetime,
    commit: str | None,
) -> Entry | None:
    """Take over what has become of an entry that is known."""
    facts = _facts(mark, item, row["commit_id"])
    entry = numbered(item, row) if isinstance(item, Entry) else None
    if row["gone_at"] is None and all(row[name] == value for name, value in facts.items()):
        return None if row["paused_at"] is not None else entry
    if row["digest"] != facts["digest"]:
        facts["commit_id"] = commit
    book.update_entry(row["number"], facts)
    was = listed(row)
    _tell_change(book, was, mark, now=now)
    if entry is None:
        _close(book, was, now=now, reason=f"it is not armed: {facts['unarmed']}")
        return None
    entry = _changed(book, was, mark, entry, now=now)
    return None if was.pause else entry


def _changed(book: Book, was: Listed, mark: Mark, entry: Entry, *, now: datetime) -> Entry:
    """Close what an entry was and begin what it is, as far as that is another thing."""
    old = was.item if isinstance(was.item, Entry) else None
    if was.gone_at is not None:
        reason = f"it was not there from {key_time(was.gone_at)} to {key_time(now)}"
        return _afresh(book, old, entry, now=now, reason=reason)
    if old is None:
        return _begun(book, entry, now=now)
    if was.mark.rule != mark.rule or clock_of(old) != clock_of(entry):
        return _afresh(book, old, entry, now=now, reason="its rule was changed")
    return entry


def _leave(book: Book, was: Listed, *, now: datetime) -> None:
    """Note that an entry is gone; what came up to now is closed, what waits is skipped."""
    _close(book, was, now=now, reason="it is no longer there")
    book.mark_gone(was.number, now=now)
    facts = {"address": was.mark.address, "title": was.mark.title}
    book.tell("entry_gone", now=now, entry=was.number, facts=facts)


def _close(book: Book, was: Listed, *, now: datetime, reason: str) -> None:
    """Account for an entry up to now without firing, and skip what waits of it."""
    if isinstance(was.item, Entry):
        book.account(was.item, close(was.item, now=now, reason=reason), now=now)
    book.skip_pending(was.number, reason=reason, now=now)


def _afresh(book: Book, old: Entry | None, new: Entry, *, now: datetime, reason: str) -> Entry:
    """Close the old rule up to now with one receipt, and begin the new one."""
    if old is not None and not _is_same_delay(old, new):
        closed = close(old, now=now, reason=reason)
        book.account(old, closed, now=now)
        new = replace(new, accounted_to=closed.accounted_to, ended_at=closed.ended_at)
    return _begun(book, new, now=now)


def _begun(book: Book, entry: Entry, *, now: datetime) -> Entry:
    """Begin a rule; its watermark only goes forward, save for a delay that was never kept."""
    begun = begin(entry, now=now)
    accounted_to = begun.accounted_to
    since = entry.accounted_to
    if since is not None and accounted_to is not None and not _is_still_due(book, entry):
        accounted_to = max(since, accounted_to)
    decision = Decision(begun.receipts, accounted_to, begun.ended_at)
    book.account(entry, decision, now=now)
    return replace(entry, accounted_to=decision.accounted_to, ended_at=decision.ended_at)


def _is_same_delay(old: Entry, new: Entry) -> bool:
    """Tell whether two rules are one delay, perhaps with another time."""
    match old.rule, new.rule:
        case OnceRule(_, str(one)), OnceRule(_, str(other)):
            return one == other
    return False


def _is_still_due(book: Book, entry: Entry) -> bool:
    """Tell whether an entry is a delay whose key has no receipt."""
    rule = entry.rule
    if not isinstance(rule, OnceRule) or rule.delay is None:
        return False
    return book.receipt_of(entry.number, f"delay:{rule.delay}") is None


def _tell_change(book: Book, was: Listed, mark: Mark, *, now: datetime) -> None:
    """Write down what is different about an entry, if a person would call it so."""
    names = ("address", "title", "rule")
    old, new = ((each.address, each.title, each.rule) for each in (was.mark, mark))
    facts: dict[str, object] = {
        name: [before, after]
        for name, before, after in zip(names, old, new, strict=True)
        if before != after
    }
    if was.gone_at is not None:
        book.tell("entry_back", now=now, entry=was.number, facts=facts)
    elif facts:
        book.tell("entry_changed", now=now, entry=was.number, facts=facts)


def _facts(mark: Mark, item: Entry | Unarmed, commit: str | None) -> dict[str, object]:
    """Return what is written down about an entry as it stands."""
    if isinstance(item, Entry):
        what = {"digest": item.digest, "spec": write_entry(item), "unarmed": None}
    else:
        what = {"digest": "", "spec": None, "unarmed": plain(item.reason)}
    return {
        "address": mark.address,
        "title": mark.title,
        "file": plain(item.origin.file),
        "line": item.origin.line,
        "rule": mark.rule,
        "body": mark.body,
        "commit_id": commit,
        **what,
    }


def _mark(row: sqlite3.Row) -> Mark:
    """Return what a known entry can be recognised by."""
    return Mark(row["address"], row["title"], row["rule"], row["body"])


def _plain_mark(mark: Mark) -> Mark:
    """Return a mark as the ledger writes it down."""
    return Mark(plain(mark.address), plain(mark.title), plain(mark.rule), mark.body)
