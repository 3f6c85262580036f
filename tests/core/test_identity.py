"""Which entry is which: numbers and history follow an entry through edits of real plans.

An entry keeps its number when it stands where it stood, or when exactly one has gone and
exactly one has come with the same body, or with the same title and rule. It may lose it
only when its place, its body, and its title or rule all changed between two scans, or
when two are alike and nothing tells which is which.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.source import Mark, Match, match
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def scan(files: Mapping[str, str]) -> list[Mark]:
    """Return what all workflows of some plans can be recognised by, file by file."""
    return [
        scanned.mark
        for file, text in sorted(files.items())
        for scanned in scan_plan(read(text), file=file, zone_name="UTC")
    ]


def known(marks: Sequence[Mark]) -> dict[int, Mark]:
    """Return entries as the ledger knows them, numbered from 1."""
    return dict(enumerate(marks, 1))


def numbers(before: str | Mapping[str, str], now: str | Mapping[str, str]) -> Match:
    """Return how the workflows of *now* match those of *before*."""
    was = {"plan.org": before} if isinstance(before, str) else before
    seen = {"plan.org": now} if isinstance(now, str) else now
    return match(known(scan(was)), scan(seen))


WATER = """\
* Water :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 ++1d>
The roses first.
"""
MOW = """\
* Mow :workflow:
SCHEDULED: <2026-06-06 Sat 08:00 ++1w>
Not on Sundays.
"""
NAMED = """\
* Water :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 ++1d>
:PROPERTIES:
:ID: water
:END:
The roses first.
"""
KEPT = Match((1, 2), (), ())


# What keeps its number


def test_nothing_changed_and_nothing_is_lost() -> None:
    assert numbers(WATER + MOW, WATER + MOW) == KEPT


@pytest.mark.parametrize(
    "now",
    [
        WATER.replace("Water", "Water the garden"),
        WATER.replace("* Water", "* TODO [#A] Water"),
        WATER.replace("* Water", "* DONE Water"),
        WATER.replace("* Water", "* COMMENT Water"),
        WATER.replace(":workflow:", ":workflow:ARCHIVE:"),
        WATER.replace("06:00", "07:00"),
        WATER.replace("++1d", ".+2d"),
        WATER.replace("roses", "lawn"),
        WATER.replace("* Water", "A line above it all.\n* Water"),
        WATER.replace("\n", "\r\n"),
        NAMED,
    ],
)
def test_one_thing_changed_and_nothing_is_lost(now: str) -> None:
    assert numbers(WATER + MOW, now + MOW) == KEPT
    assert numbers(now + MOW, WATER + MOW) == KEPT


def test_headlines_that_change_places_keep_their_numbers() -> None:
    assert numbers(WATER + MOW, MOW + WATER) == Match((2, 1), (), ())


def test_a_headline_that_moves_to_another_file_keeps_its_number() -> None:
    moved = numbers({"a.org": WATER + MOW, "b.org": ""}, {"a.org": MOW, "b.org": WATER})
    assert moved == Match((2, 1), (), ())


def test_a_file_that_is_renamed_keeps_all_numbers() -> None:
    assert numbers({"a.org": WATER + MOW}, {"b.org": WATER + MOW}) == KEPT


def test_a_headline_that_moves_under_another_keeps_its_number() -> None:
    deeper = "* Garden\n" + WATER.replace("* ", "** ", 1) + MOW.replace("* ", "** ", 1)
    assert numbers(WATER + MOW, deeper) == KEPT
    assert numbers(deeper, WATER + MOW) == KEPT


def test_a_headline_around_others_may_be_retitled() -> None:
    inside = WATER.replace("* ", "** ", 1) + MOW.replace("* ", "** ", 1)
    assert numbers("* Garden\n" + inside, "* Park\n" + inside) == KEPT


def test_a_workflow_around_another_may_be_retitled() -> None:
    nest = "* Garden :workflow:\n" + WATER.replace("* ", "** ", 1)
    assert numbers(nest, nest.replace("Garden", "Park")) == KEPT


def test_a_named_headline_may_change_all_but_its_name() -> None:
    elsewhere = NAMED.replace("Water", "Rain").replace("++1d", "+3d").replace("roses", "lawn")
    assert numbers({"a.org": NAMED + MOW}, {"a.org": MOW, "b.org": elsewhere}) == Match(
        (2, 1), (), ()
    )


def test_a_name_that_goes_away_leaves_the_entry_as_it_was() -> None:
    assert numbers(NAMED + MOW, WATER + MOW) == KEPT


def test_a_headline_may_be_named_and_moved_at_once() -> None:
    moved = numbers({"a.org": WATER + MOW}, {"a.org": MOW, "b.org": NAMED})
    assert moved == Match((2, 1), (), ())


# What stands where another stood


def test_two_that_swap_their_titles_are_who_their_titles_say() -> None:
    swapped = WATER.replace("Water", "Mow") + MOW.replace("Mow", "Water")
    assert numbers(WATER + MOW, swapped) == Match((2, 1), (), ())


def test_two_that_swap_their_names_are_who_their_names_say() -> None:
    other = NAMED.replace("Water", "Mow").replace(":ID: water", ":ID: mow")
    swapped = NAMED.replace(":ID: water", ":ID: mow") + other.replace(":ID: mow", ":ID: water")
    assert numbers(NAMED + other, swapped) == Match((2, 1), (), ())


def test_an_entry_written_where_another_stood_is_that_other() -> None:
    rewritten = "* Water :workflow:\nSCHEDULED: <2027-01-01 Fri>\nSomething else.\n"
    assert numbers(WATER + MOW, rewritten + MOW) == KEPT


# Two with one address


def test_a_copy_in_the_same_place_is_not_armed() -> None:
    assert numbers(WATER, WATER + WATER) == Match((1, None), (), (1,))


def test_of_two_in_one_place_the_known_one_is_told_by_its_looks() -> None:
    copy = WATER.replace("roses", "lawn")
    assert numbers(WATER, copy + WATER) == Match((None, 1), (), (0,))
    assert numbers(WATER, WATER + copy) == Match((1, None), (), (1,))


def test_a_copy_that_takes_the_name_along_is_not_armed() -> None:
    copied = {"a.org": NAMED, "b.org": NAMED.replace("Water", "Rain").replace("roses", "lawn")}
    assert numbers({"a.org": NAMED}, copied) == Match((1, None), (), (1,))


def test_of_two_that_are_both_new_in_one_place_the_first_is_armed() -> None:
    assert numbers("", WATER + WATER.replace("roses", "lawn")) == Match((None, None), (), (1,))


def test_a_copy_that_gets_a_title_of_its_own_is_new() -> None:
    copy = WATER.replace("Water", "Water the balcony")
    assert numbers(WATER, WATER + copy) == Match((1, None), (), ())
    assert numbers(WATER, copy + WATER) == Match((None, 1), (), ())


def test_a_double_is_not_mistaken_for_one_that_moved() -> None:
    before = {"a.org": WATER, "b.org": WATER}
    now = {"a.org": WATER + WATER, "b.org": ""}
    assert numbers(before, now) == Match((1, None), (2,), (1,))


def test_of_two_known_at_one_address_the_longer_known_stays() -> None:
    mark = scan({"plan.org": WATER})[0]
    assert match({9: mark, 4: mark}, [mark]) == Match((4,), (9,), ())


def test_the_longer_known_of_one_address_is_told_by_its_own_looks() -> None:
    roses, lawn = scan({"plan.org": WATER + WATER.replace("roses", "lawn")})
    found = match({4: roses, 9: lawn}, [roses, lawn])
    assert found == Match((4, None), (9,), (1,))


# Gone and new


def test_what_is_no_longer_there_is_gone() -> None:
    assert numbers(WATER + MOW, MOW) == Match((2,), (1,), ())
    assert numbers(WATER + MOW, "") == Match((), (1, 2), ())


def test_what_was_never_there_is_new() -> None:
    assert numbers(MOW, WATER + MOW) == Match((None, 1), (), ())
    assert numbers("", WATER + MOW) == Match((None, None), (), ())


def test_one_gone_and_another_come_are_not_the_same() -> None:
    assert numbers(WATER, MOW) == Match((None,), (1,), ())


def test_a_body_tells_apart_two_that_have_one_title_and_rule() -> None:
    lawn = WATER.replace("roses", "lawn")
    moved = numbers({"a.org": WATER, "b.org": lawn}, {"c.org": lawn, "d.org": WATER})
    assert moved == Match((2, 1), (), ())


def test_a_title_tells_apart_two_that_have_one_body() -> None:
    rain = WATER.replace("Water", "Rain")
    moved = numbers({"a.org": WATER + rain}, {"b.org": rain + WATER})
    assert moved == Match((2, 1), (), ())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"a.org": WATER, "b.org": WATER}, {"c.org": WATER}),
        ({"a.org": WATER}, {"b.org": WATER, "c.org": WATER}),
        ({"a.org": WATER, "b.org": WATER}, {"c.org": WATER, "d.org": WATER}),
    ],
)
def test_of_two_alike_nobody_guesses(before: dict[str, str], now: dict[str, str]) -> None:
    found = numbers(before, now)
    assert set(found.numbers) == {None}
    assert found.gone == tuple(range(1, len(before) + 1))


def test_one_that_stayed_does_not_make_the_one_that_moved_unsure() -> None:
    before = {"a.org": WATER, "b.org": WATER}
    assert numbers(before, {"a.org": WATER, "c.org": WATER}) == KEPT


def test_the_only_two_that_are_left_alike_are_the_same() -> None:
    rain, snow = WATER.replace("Water", "Rain"), WATER.replace("Water", "Snow")
    assert numbers({"a.org": WATER + rain}, {"b.org": WATER + snow}) == KEPT


def test_two_alike_may_be_named_at_once() -> None:
    lawn = WATER.replace("roses", "lawn")
    before = {"a.org": WATER, "b.org": lawn}
    named = {
        "a.org": NAMED,
        "b.org": NAMED.replace("roses", "lawn").replace(":ID: water", ":ID: lawn"),
    }
    assert numbers(before, named) == KEPT


def test_a_headline_may_be_retitled_and_become_the_last_at_once() -> None:
    before, now = f"{WATER}\n{MOW}", f"{MOW}\n{WATER.replace('Water', 'Rain')}"
    assert numbers(before, now) == Match((2, 1), (), ())


# Against a slow and obvious reading of the rule

WORDS = st.sampled_from(["a", "b", "c"])
MARKS = st.builds(Mark, st.sampled_from("pqrstuvw"), WORDS, WORDS, WORDS)


def unique(marks: list[Mark]) -> list[Mark]:
    return list({mark.address: mark for mark in marks}.values())


def slow(was: dict[int, Mark], scanned: Sequence[Mark]) -> list[int | None]:
    """Return the numbers by comparing everything with everything."""
    found: list[int | None] = [None] * len(scanned)
    for place, mark in enumerate(scanned):
        for number, one in was.items():
            if one.address == mark.address:
                found[place] = number
    for signs in (["body"], ["title", "rule"], ["body"]):
        gone = [number for number in was if number not in found]
        new = [place for place in range(len(scanned)) if found[place] is None]

        def is_alike(one: Mark, other: Mark, signs: list[str] = signs) -> bool:
            return all(getattr(one, sign) == getattr(other, sign) for sign in signs)

        for place in new:
            candidates = [each for each in gone if is_alike(was[each], scanned[place])]
            rivals = [other for other in new if is_alike(scanned[other], scanned[place])]
            if len(candidates) == len(rivals) == 1:
                found[place] = candidates[0]
    return found


@given(st.lists(MARKS).map(unique), st.lists(MARKS).map(unique))
@settings(max_examples=scaled(2_000), deadline=None)
def test_the_match_is_what_comparing_everything_with_everything_gives(
    was: list[Mark], scanned: list[Mark]
) -> None:
    found = match(known(was), scanned)
    wanted = slow(known(was), scanned)
    assert list(found.numbers) == wanted
    assert found.gone == tuple(n for n in range(1, len(was) + 1) if n not in wanted)
    assert found.doubles == ()


@given(st.lists(MARKS), st.lists(MARKS))
@settings(max_examples=scaled(2_000), deadline=None)
def test_a_number_goes_to_one_entry_and_one_address_has_one_armed(
    was: list[Mark], scanned: list[Mark]
) -> None:
    found = match(known(was), scanned)
    given_out = [number for number in found.numbers if number is not None]
    assert sorted([*given_out, *found.gone]) == list(range(1, len(was) + 1))
    armed = [mark.address for n, mark in enumerate(scanned) if n not in found.doubles]
    assert sorted(armed) == sorted({mark.address for mark in scanned})
    assert all(found.numbers[place] is None for place in found.doubles)


@given(st.lists(MARKS), st.lists(MARKS), st.randoms(use_true_random=False))
@settings(max_examples=scaled(2_000), deadline=None)
def test_it_does_not_matter_in_what_order_the_known_are_told(
    was: list[Mark], scanned: list[Mark], chance: object
) -> None:
    shuffled = [*known(was).items()]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis says object
    assert match(dict(shuffled), scanned) == match(known(was), scanned)


# Sequences of edits on real plans, with a model that knows the truth


@dataclass(eq=False)
class Task:
    """A workflow as its author thinks of it: the same one, whatever becomes of it."""

    who: int
    file: str
    title: str
    rule: str
    body: str
    state: str = ""
    name: str = ""
    inside: Task | None = None  # the workflow that it is a part of

    def lines(self, level: int) -> str:
        state = f"{self.state} " if self.state else ""
        drawer = f":PROPERTIES:\n:ID: {self.name}\n:END:\n" if self.name else ""
        return (
            f"{'*' * level} {state}{self.title} :workflow:\n"
            f"SCHEDULED: <2026-06-06 Sat 06:00 {self.rule}>\n{drawer}{self.body}\n"
        )


@dataclass
class World:
    """Plans in several files. Every title and body that an edit writes is a new one."""

    tasks: list[Task] = field(default_factory=list)
    made: int = 0

    def fresh(self) -> int:
        self.made += 1
        return self.made

    def new_task(self, file: str) -> None:
        n = self.fresh()
        rule = f"+{1 + n % 3}d"  # rules are few, as in life
        self.tasks.append(Task(n, file, f"Task {n}", rule, f"Text {n}."))

    def edit(self, kind: str, one: int, other: int) -> None:
        """Do one thing that a person does to a plan."""
        if kind == "add" or not self.tasks:
            self.new_task(f"plan{other % 3}.org")
            return
        task = self.tasks[one % len(self.tasks)]
        match kind:
            case "remove":
                self.tasks = [each for each in self.tasks if task not in (each, each.inside)]
            case "retitle":
                task.title = f"Title {self.fresh()}"
            case "rewrite":
                task.body = f"Words {self.fresh()}.\n\nMore of them."
            case "reschedule":
                task.rule = f"++{self.fresh()}d"
            case "finish":
                task.state = "" if task.state else "DONE"
            case "name":
                task.name = "" if task.name else f"name-{self.fresh()}"
            case _:
                self.shift(kind, task, other)

    def shift(self, kind: str, task: Task, other: int) -> None:
        """Bring a task to another place."""
        match kind:
            case "reorder":
                self.tasks.remove(task)
                self.tasks.insert(other % (len(self.tasks) + 1), task)
            case "move":
                task.inside = None
                self.carry(task, f"plan{other % 3}.org")
            case "rename file":
                old, new = task.file, f"plan-{self.fresh()}.org"
                for each in [each for each in self.tasks if each.file == old]:
                    each.file = new
            case "put inside":
                around = self.tasks[other % len(self.tasks)]
                has_parts = any(each.inside is task for each in self.tasks)
                if around is not task and around.inside is None and not has_parts:
                    task.inside, task.file = around, around.file

    def carry(self, task: Task, file: str) -> None:
        for each in self.tasks:
            if task in (each, each.inside):
                each.file = file

    def plans(self) -> tuple[dict[str, str], list[Task]]:
        """Return the plans as text, and the tasks in the order in which a scan meets them."""
        texts: dict[str, str] = {}
        order = []
        for file in sorted({task.file for task in self.tasks}):
            texts[file] = "#+TITLE: A plan\n\n"
            for task in (each for each in self.tasks if each.file == file and not each.inside):
                parts = [each for each in self.tasks if each.inside is task]
                order += [task, *parts]
                texts[file] += task.lines(1) + "".join(part.lines(2) for part in parts)
        return texts, order


KINDS = (
    "add", "remove", "retitle", "rewrite", "reschedule", "finish", "name", "reorder", "move",
    "rename file", "put inside",
)  # fmt: skip
EDITS = st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 30))


@dataclass
class Book:
    """The numbers that a ledger would have given out, and whose they really are."""

    marks: dict[int, Mark] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)

    def scan(self, world: World) -> tuple[Match, list[Mark], list[Task]]:
        texts, order = world.plans()
        marks = scan(texts)
        found = match(self.marks, marks)
        return found, marks, order

    def write(self, found: Match, marks: list[Mark], order: list[Task]) -> None:
        owners = dict(self.owners)
        self.marks, self.owners = {}, {}
        for number, mark, task in zip(found.numbers, marks, order, strict=True):
            n = number or max([0, *owners, *self.owners]) + 1
            self.marks[n], self.owners[n] = mark, task.who


def began(size: int) -> tuple[World, Book]:
    world, book = World(), Book()
    for n in range(size):
        world.new_task(f"plan{n % 3}.org")
    book.write(*book.scan(world))
    return world, book


@given(st.integers(1, 7), st.lists(EDITS, max_size=12))
@settings(max_examples=scaled(2_000), deadline=None)
def test_one_edit_at_a_time_never_costs_an_entry_its_number(
    size: int, edits: list[tuple[str, int, int]]
) -> None:
    world, book = began(size)
    for edit in edits:
        numbered = {who: number for number, who in book.owners.items()}
        world.edit(*edit)
        found, marks, order = book.scan(world)
        assert list(found.numbers) == [numbered.get(task.who) for task in order]
        assert set(found.gone) == set(book.owners) - set(found.numbers)
        assert found.doubles == ()
        book.write(found, marks, order)


@given(st.integers(1, 7), st.lists(st.lists(EDITS, min_size=2, max_size=6), max_size=5))
@settings(max_examples=scaled(2_000), deadline=None)
def test_several_edits_at_once_cost_a_number_only_when_nothing_is_left_to_know_it_by(
    size: int, scans: list[list[tuple[str, int, int]]]
) -> None:
    world, book = began(size)
    for edits in scans:
        numbered = {who: number for number, who in book.owners.items()}
        for edit in edits:
            world.edit(*edit)
        found, marks, order = book.scan(world)
        for number, mark, task in zip(found.numbers, marks, order, strict=True):
            was = book.marks.get(numbered.get(task.who, 0))
            is_known = was is not None and (
                mark.address == was.address
                or mark.body == was.body
                or (mark.title, mark.rule) == (was.title, was.rule)
            )
            assert number == (numbered[task.who] if is_known else None)
        book.write(found, marks, order)


# Cost


def calls(act: Callable[[], Match]) -> int:
    """Return how many functions are called: a measure that no busy machine disturbs."""
    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return made


def marks_of(size: int) -> list[Mark]:
    return [Mark(f"plan.org::Task {n}", f"Task {n}", "+1d", f"body {n}") for n in range(size)]


CROWDS: dict[str, Callable[[Mark], Mark]] = {
    "unchanged": lambda mark: mark,
    "moved": lambda mark: mark._replace(address=f"other-{mark.address}"),
    "moved and rewritten": lambda mark: mark._replace(address=f"o-{mark.address}", body="new"),
    "all alike": lambda mark: Mark(f"other-{mark.address}", "Task", "+1d", "body"),
}


@pytest.mark.parametrize(
    "crowd",
    [
        *CROWDS,
        pytest.param("all in one place"),
    ],
)
def test_twice_as_many_entries_cost_twice_as_much(crowd: str) -> None:
    def in_one_place(mark: Mark) -> Mark:
        return mark._replace(address="plan.org::Task 0")

    change = CROWDS.get(crowd, in_one_place)

    def cost(size: int) -> int:
        was, scanned = known(marks_of(size)), [change(mark) for mark in marks_of(size)]
        return calls(lambda: match(was, scanned))

    assert cost(400) < 2.5 * cost(200)


def test_ten_thousand_entries_that_all_moved_are_all_recognised() -> None:
    marks = marks_of(10_000)
    moved = [CROWDS["moved"](mark) for mark in reversed(marks)]
    assert match(known(marks), moved).numbers == tuple(range(10_000, 0, -1))
