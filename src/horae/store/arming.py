"""The takeover of a scan: entries begin, change, pause, resume and end, and nothing past fires.

Times that passed meanwhile have one receipt with the reason, and the watermark is now. Only a delay
stays due until its key has a receipt. A scan costs what has changed: it reads the known entries of
the files that were read, the missing ones, and those with the addresses found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from horae.core.actor import ENGINE, by_words
from horae.core.budget import LONGEST
from horae.core.decide import Decision, begin, close
from horae.core.entry import (
    CadenceRule,
    CronRule,
    Entry,
    OnceRule,
    Origin,
    RepeaterRule,
    anchored_item,
    floating,
    key_time,
)
from horae.core.ports import micros, moment, plain
from horae.core.receipt import GONE, Reason, ReasonCode, Status, broken_receipt
from horae.core.source import Mark, match
from horae.core.spending import LONGEST as LONGEST_LIMIT
from horae.store import codec, spending
from horae.store.codec import entry_of, filed_of, item_of, listed, mark_of, next_at, run_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from horae.core.entry import Unarmed
    from horae.core.ports import Listed
    from horae.core.source import Revision, Scan, Scanned
    from horae.store.ledger import Transaction


def pause(
    tx: Transaction, number: int, *, now: datetime, note: str = "", until: datetime | None = None
) -> int | None:
    values = {"now": now, "note": plain(note), "until": until, "by": tx.actor}
    if not tx.change("entry.pause", number=number, **values):
        return None
    was = tx.entry(number)
    assert was is not None, "it was just paused"
    words = by_words("paused", note, actor=tx.actor)
    reason = Reason(ReasonCode.PAUSED, f"did not run before the entry was {words}")
    if isinstance(was.item, Entry) and _delay_of(was.item) is None:
        # These times are before the pause, and are undecided if no engine was running.
        tx.account(was.item, close(was.item, now=now, reason=reason), now=now)
    skipped = tx.skip_pending(number, reason=reason, now=now)
    facts = {"note": note, "until": None if until is None else key_time(until)}
    tx.tell("paused", now=now, entry=number, facts=facts)
    return skipped


def resume(tx: Transaction, number: int, *, now: datetime) -> bool:
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
    rested = [row[0] for row in tx.rows("entry.rested", now=now)]
    return [*held, *(number for number in rested if resume(tx, number, now=now))]


def set_back(tx: Transaction, *, now: datetime) -> int:
    tx.change("purse.set_back", now=now, most=now + LONGEST)
    tx.change("account.set_back", now=now, most=now + LONGEST_LIMIT)
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
    """Set every watermark to now and end all open receipts, so that nothing past fires."""
    for was in tx.entries():
        if not isinstance(was.item, Entry) or was.gone_at is not None:
            continue
        closed = close(was.item, now=now, reason=reason)
        # Receipts that wait for an end that will not come end now.
        begun = beginning(
            replace(was.item, accounted_to=closed.accounted_to, ended_at=closed.ended_at), now=now
        )
        tx.account(was.item, replace(closed, ended_at=begun.ended_at), now=now)
    for filed in tx.every(filed_of, "receipt.open"):
        run = tx.one(run_of, "run.open_of_receipt", receipt=filed.number)
        if filed.status is Status.RUNNING and run is not None:
            # Without a retry: what it did since the backup is unknown.
            tx.finish(filed, Status.INTERRUPTED, reason=reason, now=now)
            tx.close_run(run.number, outcome=Status.INTERRUPTED, reason=reason, now=now)
            continue
        if run is not None:
            tx.give_back(run.number, reason=reason, now=now)
        waiting = tx.receipt(filed.number)
        assert waiting is not None, "it was just listed"
        tx.finish(waiting, Status.SKIPPED, reason=reason, now=now)


def end_rule(tx: Transaction, was: Listed, *, now: datetime, reason: Reason) -> None:
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
    # The same delay, perhaps with another time.
    if old is not None and (_delay_of(old) is None or _delay_of(old) != _delay_of(new)):
        closed = close(old, now=since or now, reason=reason)
        tx.account(old, closed, now=now)
        new = replace(new, accounted_to=closed.accounted_to, ended_at=closed.ended_at)
    begin_rule(tx, new, now=now, since=since)


def begin_rule(
    tx: Transaction, entry: Entry, *, now: datetime, since: datetime | None = None
) -> None:
    """Begin a rule; its watermark only moves forward, except for a delay that never ran."""
    begun = beginning(entry, now=since or now)
    accounted_to = begun.accounted_to
    was = entry.accounted_to
    if was is not None and accounted_to is not None and not _is_still_due(tx, entry):
        accounted_to = max(was, accounted_to)
    tx.account(entry, Decision(begun.receipts, accounted_to, begun.ended_at), now=now)


def beginning(entry: Entry, *, now: datetime) -> Decision:
    begun = begin(entry, now=now)
    if isinstance(entry.rule, CadenceRule):
        after = replace(entry, accounted_to=begun.accounted_to, ended_at=begun.ended_at)
        if next_at(after) is None:
            return replace(begun, ended_at=begun.accounted_to)
    return begun


def first_seen(tx: Transaction, entry: Entry, *, now: datetime) -> Decision:
    """Return what to write about an entry that is new to the ledger.

    A ledger created in place of a lost one does not know whether missed times have run.
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
    delay = _delay_of(entry)
    return delay is not None and tx.receipt_of(entry.number, f"delay:{delay}") is None


_AT_ONCE: Final = 1000  # new entries in one statement
_GOOD: Final = ("digest", "spec", "unarmed", "commit_id")  # kept while the text is broken


def scan(
    tx: Transaction,
    source: str,
    scan: Scan,
    *,
    now: datetime,
    revision: Revision | None,
    patience: timedelta,
) -> datetime | None:
    ground = _ScanScope(scan, tx.index(source))
    found = [_read(each) for each in scan.entries]
    chosen, rows, unsure = _choose(tx, source, found, ground)
    known = {number: mark_of(row) for number, row in rows.items()}
    matched = match(known, [each.mark for each in chosen])
    doubles = frozenset(matched.doubles)
    winners: dict[str, str] = {}
    taking = _Taking(tx, source, now)
    for place, (each, number) in enumerate(zip(chosen, matched.numbers, strict=True)):
        if place in doubles:
            continue
        winners[each.mark.address] = each.file
        commit = None if revision is None else revision.of(each.item.origin.file)
        if number is None:
            taking.add(each, commit)
        else:
            taking.stay(rows[number], each, commit)
    taking.write()
    taking.write_texts()
    for row in tx.rows_in(source, [plain(file) for file in scan.broken]):
        taking.break_with_file(row, plain(scan.broken[row["file"]]))
    if revision is not None and revision.files is not None:
        commits = [
            {"source": source, "file": file, "commit_id": revision.commit}
            for file in tx.loose(source)
            if ground.is_as_it_was(file) and file in revision.files
        ]
        tx.change_all("entry.commit_file", commits)
    behind = [chosen[place] for place in doubles]
    unsure |= {each.file for each in behind if each.file != winners[each.mark.address]}
    gone = [rows[number] for number in matched.gone]
    looks = [taking.miss(row, patience) for row in gone if ground.misses(row)]
    if scan.problems:
        # Entries of an unreadable file are not missing.
        hidden = [row for row in gone if row["missing_at"] is not None and not ground.misses(row)]
        tx.change_all("entry.unmiss", [{"number": row["number"]} for row in hidden])
    index = {file: name for file, name in ground.index.items() if file not in unsure}
    changed = [
        {"source": source, "file": file, "known_as": known_as}
        for file, known_as in index.items()
        if ground.was.get(file) != known_as
    ]
    lost = [{"source": source, "file": file} for file in ground.was.keys() - index.keys()]
    tx.change_all("entry.know_file", changed)
    tx.change_all("entry.forget_file", lost)
    return min((look for look in looks if look is not None), default=None)


class _ScannedEntry(NamedTuple):
    mark: Mark
    file: str
    item: Entry | Unarmed
    text: str
    broken: str


class _ScanScope:
    def __init__(self, scan: Scan, was: Mapping[str, str]) -> None:
        names = [plain(name) for name in scan.standing]
        self._files = frozenset(names)
        self._folders = tuple(name for name in names if not name or name.endswith("/"))
        self.was = was
        index = ((plain(file), plain(known_as)) for file, known_as in scan.index.items())
        self.index = {file: known_as for file, known_as in index if known_as}

    def stands(self, file: str) -> bool:
        return file in self._files or file.startswith(self._folders)

    def is_as_it_was(self, file: str) -> bool:
        """Return whether a file is unchanged since it was read; false for an unreadable one."""
        return file in self.was and file in self.index and self.stands(file)

    def misses(self, row: sqlite3.Row) -> bool:
        file = row["file"]
        return row["gone_at"] is None and (not self.stands(file) or self.is_as_it_was(file))

    def read_files(self, tx: Transaction, source: str) -> list[str] | None:
        if not self._files:
            return None
        if "" in self._folders:
            return []
        return [file for file in tx.files(source) if not self.stands(file)]


def _choose(
    tx: Transaction, source: str, found: Sequence[_ScannedEntry], ground: _ScanScope
) -> tuple[list[_ScannedEntry], dict[int, sqlite3.Row], set[str]]:
    """Return the scanned entries to use, the rows that they may match, and files to read again.

    Of several with one address, armed ones come before others, and one in an unchanged file before
    all. The file of an entry that is not used is read again by the next scan, as it is the one left
    if the other is removed.
    """
    read = tx.rows_in(source, ground.read_files(tx, source))
    rows = {row["number"]: row for row in (*read, *tx.rows("entry.missing", source=source))}
    addresses = {each.mark.address for each in found}
    others = tx.rows_at(source, addresses - {row["address"] for row in rows.values()})
    sure = {
        row["address"]: row
        for row in others
        if row["gone_at"] is None and ground.is_as_it_was(row["file"])
    }
    armed = {each.mark.address: each.file for each in found if isinstance(each.item, Entry)}
    chosen, unsure = [], set()
    for each in found:
        address = each.mark.address
        is_armed = isinstance(each.item, Entry)
        row = sure.get(address)
        if row is not None and (row["spec"] is not None or not is_armed):
            unsure.add(each.file)
        elif not is_armed and address in armed:
            unsure |= {each.file} - {armed[address]}
        else:
            chosen.append(each)
            unsure |= set() if row is None else {row["file"]}
    taken = {each.mark.address for each in chosen}
    rows |= {row["number"]: row for row in others if row["address"] in taken}
    return chosen, rows, unsure


@dataclass(slots=True)
class _Taking:
    tx: Transaction
    source: str
    now: datetime
    new: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # new and changed texts by digest

    def add(self, found: _ScannedEntry, commit: str | None) -> None:
        now, item = self.now, anchored_item(found.item, now=self.now)
        row = _facts(found._replace(item=item), commit)
        row["source"] = self.source
        row["ticks"] = row["streak"] = row["failures"] = 0
        self.new.append(row)
        if not isinstance(item, Entry):
            row["accounted_to"], row["ended_at"], row["next_at"] = micros(now), None, None
        else:
            entry, rule = item, item.rule
            if item.accounted_to is not None or item.ended_at is not None:
                entry = replace(item, accounted_to=None, ended_at=None)
            begun = beginning(entry, now=now)
            row["accounted_to"] = micros(begun.accounted_to)
            row["ended_at"] = micros(begun.ended_at)
            row["next_at"] = codec.next_after(entry, begun.accounted_to, begun.ended_at)
            if isinstance(rule, CadenceRule):
                row |= {"ticks": rule.ticks, "streak": rule.streak, "failures": rule.failures}
            if item.digest:
                self.texts[item.digest] = found.text
            if begun.receipts:
                self.write()
                entry = replace(entry, number=row["number"])
                self.tx.account(entry, first_seen(self.tx, entry, now=now), now=now)
        if len(self.new) >= _AT_ONCE:  # or a server would take us for frozen
            self.write()

    def write(self) -> None:
        if self.new:
            self.tx.insert_entries(self.new, now=self.now)
            self.new = []

    def write_texts(self) -> None:
        # In the order of their digests, so that each page of their index is written once.
        texts = sorted(self.texts.items())
        for first in range(0, len(texts), _AT_ONCE):
            self.tx.keep_texts(texts[first : first + _AT_ONCE], now=self.now)

    def stay(self, row: sqlite3.Row, found: _ScannedEntry, commit: str | None) -> None:
        if floating(found.item):
            item = anchored_item(found.item, now=self.now, was=codec.item_of(row))
            found = found._replace(item=item)
        tx, now, mark, item = self.tx, self.now, found.mark, found.item
        facts = _facts(found, commit)
        if row["digest"] == facts["digest"]:
            facts["commit_id"] = row["commit_id"] or commit  # the first commit that has it
        if facts["broken"] and _was_good(row):
            self._keep_good(row, facts)
            return
        is_seen = row["gone_at"] is None and row["missing_at"] is None
        if is_seen and _stands(row, facts):
            return
        self.write()  # events keep the order of the entries in the scan
        entry = codec.numbered(item, row) if isinstance(item, Entry) else None
        # The text of an entry that is back may have been pruned.
        is_other = row["digest"] != facts["digest"] or row["gone_at"] is not None
        if entry is not None and entry.digest and is_other:
            self.texts[entry.digest] = found.text
        tx.update_entry(row["number"], facts, entry)
        was = listed(row)
        names = ("address", "title", "rule")
        changes = {name: [row[name], getattr(mark, name)] for name in names}
        told = {name: pair for name, pair in changes.items() if pair[0] != pair[1]}
        if was.gone_at is not None or told:  # a change that a user would notice
            kind = "entry_changed" if was.gone_at is None else "entry_back"
            tx.tell(kind, now=now, entry=was.number, facts=told)
        if was.broken_at is not None:
            tx.tell("entry_mended", now=now, entry=was.number, facts={"title": mark.title})
        if entry is not None:
            self._change(was, mark, entry)
        elif isinstance(was.item, Entry):
            end_rule(tx, was, now=now, reason=_unarmed(str(facts["unarmed"])))

    def miss(self, row: sqlite3.Row, patience: timedelta) -> datetime | None:
        """Record that an entry is missing; return when it will be removed, or None if it is."""
        seen: int | None = row["missing_at"]
        # Missing since a time in the future: the clock was ahead.
        since = self.now if seen is None else min(self.now, moment(seen))
        if self.now - since < patience:
            if seen != micros(since):
                self.tx.change("entry.miss", number=row["number"], now=since)
            return since + patience
        was = listed(row)
        self.tx.remove_entry(was, reason=_unarmed(GONE), now=self.now)
        return None

    def break_with_file(self, row: sqlite3.Row, why: str) -> None:
        if not _was_good(row):
            return
        # A task has several entries, and one event is enough: of the one with a schedule.
        is_clock = isinstance(entry_of(row).rule, CronRule | RepeaterRule | CadenceRule)
        if is_clock or row["source"] == "trigger":
            names = ("address", "title", "file", "line", "rule", "body")
            self._keep_good(row, {**{name: row[name] for name in names}, "broken": why})

    def _keep_good(self, row: sqlite3.Row, facts: dict[str, object]) -> None:
        """Keep the last valid version of an entry with unreadable text; report it once."""
        since = row["broken_at"]
        facts |= {name: row[name] for name in _GOOD}
        facts["broken_at"] = micros(self.now) if since is None else since
        if row["missing_at"] is None and _stands(row, facts):
            return
        entry = entry_of(row)
        self.tx.update_entry(row["number"], facts, entry)
        if since is None:
            why = str(facts["broken"])
            told = {"title": facts["title"], "reason": why}
            self.tx.tell("entry_broken", now=self.now, entry=entry.number, facts=told)
            receipts = (broken_receipt(why, now=self.now),)
            origin = Origin(str(facts["file"]), int(str(facts["line"])))
            decision = Decision(receipts, entry.accounted_to, entry.ended_at)
            self.tx.account(replace(entry, origin=origin), decision, now=self.now)

    def _change(self, was: Listed, mark: Mark, entry: Entry) -> None:
        tx, now = self.tx, self.now
        old = was.item if isinstance(was.item, Entry) else None
        if was.gone_at is not None:
            words = f"the entry was not in the plan from {key_time(was.gone_at)} to {key_time(now)}"
            reason = Reason(ReasonCode.ENTRY_REMOVED, words)
            begin_afresh(tx, old, entry, now=now, reason=reason)
        elif old is None:
            begin_rule(tx, entry, now=now)
        elif _is_other_rule(was, mark, old, entry):
            reason = Reason(ReasonCode.RULE_CHANGED, "the rule was changed")
            begin_afresh(tx, old, entry, now=now, reason=reason)
        elif (
            # A cadence without a next tick, and without a run whose end would set it.
            isinstance(entry.rule, CadenceRule)
            and next_at(entry) is None
            and tx.row("receipt.has_open", entry=entry.number) is None
        ):
            begin_rule(tx, entry, now=now)


def _was_good(row: sqlite3.Row) -> bool:
    is_armed = row["spec"] is not None and row["gone_at"] is None
    return is_armed and (row["broken"] is None or row["broken_at"] is not None)


def _stands(row: sqlite3.Row, facts: Mapping[str, object]) -> bool:
    return all(row[name] == value for name, value in facts.items())


def _is_other_rule(was: Listed, mark: Mark, old: Entry, new: Entry) -> bool:
    if codec.clock_of(old) != codec.clock_of(new):
        return True
    if isinstance(old.rule, CadenceRule) and isinstance(new.rule, CadenceRule):
        return old.rule.base != new.rule.base
    if was.broken_at is not None:  # the text that was broken was not in use
        return old.rule != new.rule
    return was.mark.rule != mark.rule


def _unarmed(why: str) -> Reason:
    if why == GONE:
        return Reason(ReasonCode.ENTRY_REMOVED, GONE)
    return Reason(ReasonCode.NOT_ARMED, f"not armed: {why}")


def _facts(found: _ScannedEntry, commit: str | None) -> dict[str, Any]:
    mark, item = found.mark, found.item
    return {
        "address": mark.address,
        "title": mark.title,
        "file": found.file,
        "line": item.origin.line,
        "rule": mark.rule,
        "body": mark.body,
        "commit_id": commit,
        "broken": plain(found.broken) or None,
        "broken_at": None,
        "digest": item.digest if isinstance(item, Entry) else "",
        "spec": codec.write_entry(item) if isinstance(item, Entry) else None,
        "unarmed": None if isinstance(item, Entry) else plain(item.reason),
    }


def _read(scanned: Scanned) -> _ScannedEntry:
    mark, item, text, broken = scanned
    mark = Mark(plain(mark.address), plain(mark.title), plain(mark.rule), mark.body)
    return _ScannedEntry(mark, plain(item.origin.file), item, text, broken)
