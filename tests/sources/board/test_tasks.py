"""Tasks are found by number and changed field by field, and no other byte is touched."""

from __future__ import annotations

import multiprocessing
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from horae.files import edit as edit_module
from horae.files.edit import EditConflictError, spliced
from horae.files.read import Content, PlanFileError
from horae.sources.board import find_tasks, tasks as tasks_module
from horae.sources.board.rules import TransitionError
from horae.sources.board.task import parse
from horae.sources.board.tasks import (
    Board,
    BoardMissingError,
    TaskAmbiguousError,
    TaskEditError,
    TaskFileError,
    TaskMissingError,
    scalar,
    slug,
    splices_of,
    task_text,
)
from scale import scaled

if TYPE_CHECKING:
    from horae.sources.board.rules import Changes, Value
    from horae.sources.board.task import Task

TASK = "---\nid: 7\ntitle: Sow\nstatus: todo\n---\n\nIn rows.\n"


def edited(text: str, changes: Changes) -> str:
    data = text.encode()
    task = parse(text).task
    assert task is not None
    return spliced(data, splices_of(Content("7.md", data, text), task, changes)).decode()


def read(text: str) -> Task:
    task, _ = parse(text)
    assert task is not None
    return task


@pytest.fixture
def board(tmp_path: Path) -> Board:
    (tmp_path / "board" / "tasks").mkdir(parents=True)
    return Board(tmp_path / "board" / "tasks")


def put(board: Board, name: str, text: str = TASK) -> Path:
    path = Path(board.directory) / name
    path.write_text(text)
    return path


# One field


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("status: todo\n", {"status": "done"}, "status: done\n"),
        ("status:   'todo'  # so far\n", {"status": "done"}, "status:   done  # so far\n"),
        ("status:  # none\n", {"status": "done"}, "status: done  # none\n"),
        ('"status": todo\n', {"status": "done"}, '"status": done\n'),
        ("status: |\n  to\n  do\n\nx: 1\n", {"status": "done"}, "status: done\n\nx: 1\n"),
        ("tags:\n  - a\n  - b # why\nx: 1\n", {"tags": ("c",)}, "tags: [c] # why\nx: 1\n"),
        ("tags:\n- a\n- b\nx: 1\n", {"tags": None}, "x: 1\n"),
        ("x: 1\nbranch: a\n# end\n", {"branch": None}, "x: 1\n# end\n"),
        ("x: 1\n", {"branch": None}, "x: 1\n"),
        ("x: 1\n# end\n", {"scheduled_for": "t"}, "x: 1\n# end\nscheduled_for: t\n"),
        ("blocked: true\n", {"blocked": False}, "blocked: false\n"),
        ("attempt: 03\n", {"attempt": 4}, "attempt: 4\n"),
        ("branch: a\n", {"branch": ""}, ""),
    ],
)
def test_an_edit_writes_its_own_lines(before: str, changes: Changes, after: str) -> None:
    frame = "---\nid: 7\ntitle: Sow\n{}---\nBody: {{}}\n"
    assert edited(frame.format(before), changes) == frame.format(after)


def test_several_fields_go_in_one_edit_and_new_ones_stand_last_in_their_order() -> None:
    after = edited(TASK, {"scheduled_for": "2026-03-25T09:00:00Z", "status": None, "branch": "b"})
    assert after == (
        '---\nid: 7\ntitle: Sow\nscheduled_for: "2026-03-25T09:00:00Z"\nbranch: b\n---\n'
        "\nIn rows.\n"
    )


def test_a_value_that_is_so_already_is_not_written() -> None:
    text = "---\nid: 7\ntitle: 'Sow'\ntags: [ a,b ]\nblocked: True\n---\n"
    assert edited(text, {"title": "Sow", "tags": ("a", "b"), "blocked": True, "x": None}) == text


def test_lines_end_as_the_others_do_and_a_mark_at_the_top_stays() -> None:
    text = "\ufeff---\r\nid: 7\r\ntitle: Säen\r\nstatus: todo\r\n---\r\nBody"
    after = edited(text, {"status": "done", "branch": "b"})
    assert after == text.replace("todo", "done").replace("done\r\n", "done\r\nbranch: b\r\n")


def test_fields_that_are_all_indented_are_joined_by_one_that_is() -> None:
    text = "---\n  id: 7\n  title: Sow\n---\n"
    assert edited(text, {"branch": "b"}) == "---\n  id: 7\n  title: Sow\n  branch: b\n---\n"


@pytest.mark.parametrize(
    "text",
    [
        "---\n{id: 7, title: Sow, status: todo}\n---\n",
        "---\n# all\n{\n  id: 7,\n  title: Sow, status: todo\n}\n---\n",
    ],
)
def test_fields_in_braces_are_refused(text: str) -> None:
    with pytest.raises(TaskEditError, match="write each on its own line"):
        edited(text, {"status": "done"})


def test_what_would_read_otherwise_is_refused() -> None:
    text = "---\nid: 7\ntitle: Sow\n...\n---\n"  # YAML is over before the fence
    with pytest.raises(TaskEditError, match="branch cannot be changed"):
        edited(text, {"branch": "b"})


def test_half_a_character_is_refused() -> None:
    with pytest.raises(TaskEditError, match="unpaired surrogate"):
        edited(TASK, {"branch": "\ud800"})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("todo", "todo"),
        ("in-progress", "in-progress"),
        ("*/5 * * * *", '"*/5 * * * *"'),
        ("@daily", '"@daily"'),
        ("2026-03-25T09:00:00Z", '"2026-03-25T09:00:00Z"'),
        ("042", '"042"'),
        ("On", '"On"'),
        ("null", '"null"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        (" a", '" a"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("two\nlines", '"two\\nlines"'),
        ("über", '"über"'),
        ((1, 2), "[1, 2]"),
        (("a", "no"), '[a, "no"]'),
        (True, "true"),
        (12, "12"),
    ],
)
def test_a_value_has_quotes_if_some_reader_would_take_it_for_something_else(
    value: Value, written: str
) -> None:
    assert scalar(value) == written


# Any file


COMMENTS = st.sampled_from(["", "", "  # why", " #"])
PLAIN = st.from_regex(r"[A-Za-z][A-Za-z0-9_/-]{0,8}", fullmatch=True)
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff\ufffe\uffff"),
    min_size=1,
    max_size=12,
)
KEYS = ("status", "priority", "branch", "scheduled_for", "notes", "tags", "x-own", "estimate")


@st.composite
def fields(draw: st.DrawFn, key: str) -> str:
    """Return the lines of one field, in some style."""
    word, comment = draw(PLAIN), draw(COMMENTS)
    style = draw(st.integers(0, 9))
    return {
        0: f"{key}: {word}{comment}\n",
        1: f"{key}: '{word}, it''s'{comment}\n",
        2: f'{key}: "{word} \\u00e9"{comment}\n',
        3: f"{key}:{comment}\n",
        4: f"{key}: |\n  {word}\n\n  more\n",
        5: f"{key}: >-\n  {word}\n  more\n",
        6: f"{key}:\n  - {word}{comment}\n  - b\n",
        7: f"{key}: [{word}, 'b']{comment}\n",
        8: f"{key}: {word}\n  goes on{comment}\n",
        9: f'"{key}" :  {word} ü{comment}\n',
    }[style]


@st.composite
def files(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Return a task file as pieces: the key that each belongs to, and its text."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    # These two must read as they are.
    body = [("id", f"id: {draw(st.integers(0, 999)):03}\n"), ("title", "title: 'Säen'\n")]
    body += [(key, draw(fields(key))) for key in keys]
    shuffled = draw(st.permutations(body))
    pieces = [("", draw(st.sampled_from(["---\n", "\ufeff---\n", "\n ---  \n"])))]
    for piece in shuffled:
        if draw(st.integers(0, 3)) == 0:
            # Below a block an indented note would belong to its text.
            indent = "" if ": |" in pieces[-1][1] or ": >" in pieces[-1][1] else "  "
            notes = ["# a note\n", "\n", f"{indent}# status: no\n"]
            pieces.append(("", draw(st.sampled_from(notes))))
        pieces.append(piece)
    pieces.append(("---", "---"))
    pieces.append(
        ("", draw(st.sampled_from(["", "\n", "\n\nstatus: todo\n---\nend", "\n# ü\n\n"])))
    )
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return [(key, text.replace("\n", newline)) for key, text in pieces]


VALUES = st.one_of(TEXTS, PLAIN, st.integers(0, 10**9), st.booleans(), st.none())


def test_a_field_goes_and_its_key_stays_if_a_note_would_join_the_text_above() -> None:
    text = "---\nid: 7\ntitle: Sow\nnotes: |\n  in rows\nbranch: b\n  # a note\n---\n"
    out = edited(text, {"branch": None})
    assert out == text.replace("branch: b", "branch:")
    assert (read(out).text("branch"), read(out).text("notes")) == (None, "in rows\n")
    assert edited(out, {"branch": "c"}) == text.replace("branch: b", "branch: c")
    alone = text.replace("  # a note\n", "")
    assert edited(alone, {"branch": None}) == alone.replace("branch: b\n", "")


@settings(max_examples=scaled(10_000, few=200), deadline=None)
@given(
    files(),
    st.sampled_from((*KEYS, "claimed_by")),
    VALUES,
)
def test_an_edit_changes_its_own_lines_and_no_other_byte_and_reads_back(
    pieces: list[tuple[str, str]], key: str, value: Value | None
) -> None:
    text = "".join(part for _, part in pieces)
    owners = [owner for owner, _ in pieces]
    at = owners.index(key) if key in owners else owners.index("---")
    before, after = pieces[:at], pieces[at + (key in owners) :]
    out = edited(text, {key: value})
    head, tail = "".join(part for _, part in before), "".join(part for _, part in after)
    assert out.startswith(head)
    assert out.endswith(tail)
    own = out[len(head) : len(out) - len(tail)]
    task = read(out)
    if value is None:
        # A blank line that stood below a block stays; so does a key that a note needs.
        assert re.fullmatch(rf"""\s*("?{key}"? *:\s*(#.*)?)?\s*""", own)
        assert task.fields.get(key) is None
    else:
        assert own.count("\n") <= 1 or not own.split("\n", 1)[1].strip()
        held = {bool: task.flag, int: task.number, str: task.text}[type(value)]
        assert held(key) == value


# On the disk


def test_a_task_is_found_by_its_number_whatever_its_file_is_called(board: Board) -> None:
    put(board, "099-sow.md")
    put(board, "7.txt")
    assert board.card(7).task.title == "Sow"


@pytest.mark.parametrize("name", ["001-other.md", "007-other.md", "other.md"])
def test_a_number_that_two_files_have_is_none_that_can_be_meant(board: Board, name: str) -> None:
    put(board, name, TASK.replace("Sow", "Other"))
    put(board, "007-sow.md")
    before = [path.read_bytes() for path in sorted(Path(board.directory).iterdir())]
    files = ", ".join(sorted([f"{board.directory}/{name}", f"{board.directory}/007-sow.md"]))
    said = f"2 files have the id 7: {files}; give all but one of them another id"
    for asked in (board.card, lambda n: board.change(n, lambda _: {})):
        with pytest.raises(TaskAmbiguousError) as error:
            asked(7)
        assert (error.value.exit_code, str(error.value)) == (6, said)
    assert [*map(str, board.read().problems)] == [said]
    assert [path.read_bytes() for path in sorted(Path(board.directory).iterdir())] == before


def test_a_file_named_for_a_number_that_it_does_not_have_is_not_that_task(board: Board) -> None:
    put(board, "699-sow.md")
    with pytest.raises(TaskMissingError, match=r"task #699 not found in .*/board/tasks$") as error:
        board.card(699)
    assert error.value.exit_code == 4


def test_a_file_named_for_a_number_that_cannot_be_read_says_what_is_wrong(board: Board) -> None:
    put(board, "007-sow.md", TASK.replace("status: todo", "status: *"))
    with pytest.raises(TaskFileError, match=r"007-sow.md:4:9: .* put it in quotes"):
        board.card(7)


def test_a_board_that_is_not_there_is_said(tmp_path: Path) -> None:
    for look in (lambda: Board(tmp_path / "no").read(), lambda: Board(tmp_path / "no").card(1)):
        with pytest.raises(BoardMissingError, match="the board cannot be read: "):
            look()


def test_tasks_come_by_number_and_a_broken_one_stops_no_other(board: Board) -> None:
    for number in (10, 9, 100):
        put(board, f"{number}.md", TASK.replace("7", str(number)))
    put(board, "1.md", "no task")
    cards = board.read()
    assert [task.id for task in cards.tasks] == [9, 10, 100]
    assert [type(problem) for problem in cards.problems] == [TaskFileError]


def test_a_task_that_did_not_change_is_not_parsed_again(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(board, "7.md")
    first = board.read()
    monkeypatch.setattr("horae.sources.board.tasks.parse", None)
    assert board.read() == first
    assert board.read() == first


def test_where_the_board_is(tmp_path: Path) -> None:
    assert find_tasks(tmp_path) == "board/tasks"
    (tmp_path / ".batty" / "team_config" / "board" / "tasks").mkdir(parents=True)
    assert find_tasks(tmp_path) == ".batty/team_config/board/tasks"
    (tmp_path / "board" / "tasks").mkdir(parents=True)
    assert find_tasks(tmp_path) == "board/tasks"
    assert find_tasks(tmp_path, board="cards/") == "cards/tasks"


def test_a_person_who_saves_meanwhile_wins_and_the_edit_is_made_on_that(board: Board) -> None:
    path = put(board, "7.md")
    saves = iter(["# mine\n", "# mine, too\n"])

    def decide(task: Task) -> Changes:
        for save in saves:
            path.write_text(path.read_text().replace("---\n\n", f"{save}---\n\n"))
            break
        return {"branch": f"after {task.status}"}

    board.change(7, decide)
    assert path.read_text() == TASK.replace(
        "---\n\n", "# mine\n# mine, too\nbranch: after todo\n---\n\n"
    )


def test_a_file_that_became_another_task_is_left_alone(board: Board) -> None:
    path = put(board, "7.md")
    with pytest.raises(EditConflictError, match="is no longer task #8"):
        board.change(8, lambda _: {"branch": "b"}, path=str(path))
    assert path.read_text() == TASK


def test_a_link_is_not_followed(board: Board, tmp_path: Path) -> None:
    (tmp_path / "out.md").write_text(TASK)
    (Path(board.directory) / "7.md").symlink_to(tmp_path / "out.md")
    with pytest.raises(TaskMissingError):
        board.change(7, lambda _: {"branch": "b"})
    assert (tmp_path / "out.md").read_text() == TASK


def test_a_new_task_has_the_next_number_also_after_what_was_put_away(board: Board) -> None:
    put(board, "7.md")
    archive = Path(board.directory).parent / "archive"
    archive.mkdir()
    (archive / "041-gone.md").write_text(TASK)
    card = board.add("Weekly: *report*", {"status": "todo", "tags": ("a", "b")}, body="Do it.")
    assert (card.task.id, card.path) == (42, f"{board.directory}/042-weekly-report.md")
    assert Path(card.path).read_text() == (
        '---\nid: 42\ntitle: "Weekly: *report*"\nstatus: todo\ntags: [a, b]\n---\n\nDo it.\n'
    )
    assert board.card(42).task == card.task


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("日本", "task"),
        ("a" * 60, "a" * 50),
        ("one two three four five six seven eight nine ten eleven", "one-two-three-four-five-six-seven-eight-nine-ten"),
    ],
)  # fmt: skip
def test_a_title_becomes_a_plain_name(title: str, name: str) -> None:
    assert slug(title) == name


def test_a_new_file_reads_as_what_it_was_made_of() -> None:
    task = read(task_text({"id": 7, "title": "yes", "branch": None}, body="\n\nB\n"))
    assert (task.title, task.body, set(task.fields)) == ("yes", "\nB\n", {"id", "title"})


# Put away


def put_away(task: Task) -> Changes:
    return {} if task.status == "archived" else {"status": "archived"}


def archive_of(board: Board) -> Path:
    return Path(board.directory).parent / "archive"


def test_a_task_that_is_put_away_keeps_its_name_and_its_bytes(board: Board) -> None:
    path = put(board, "007-sow.md", TASK.replace("todo", "todo # soon"))
    path.chmod(0o640)
    card = board.archive(7, put_away)
    there = archive_of(board) / "007-sow.md"
    assert (card.path, card.task.status) == (str(there), "archived")
    assert there.read_text() == TASK.replace("todo", "archived # soon")
    assert (there.stat().st_mode & 0o777, path.exists()) == (0o640, False)
    assert board.read().archived == {7}
    with pytest.raises(TaskMissingError, match=r"not found .*; it was archived as .*007-sow.md"):
        board.card(7)
    assert board.archived_card(7).task.title == "Sow"
    with pytest.raises(TaskMissingError) as missing:
        board.archived_card(8)
    assert missing.value.put_away is None


def test_another_file_of_that_name_in_the_archive_is_never_replaced(board: Board) -> None:
    path = put(board, "7.md")
    archive_of(board).mkdir()
    (archive_of(board) / "7.md").write_text("mine")
    with pytest.raises(EditConflictError, match=r"archive/7.md: already exists and is not changed"):
        board.archive(7, put_away)
    assert (archive_of(board) / "7.md").read_text() == "mine"
    assert read(path.read_text()).status == "archived"  # which is put away enough


@pytest.mark.parametrize("exchange", ["", "none"])
def test_an_archive_that_leads_elsewhere_is_refused(
    board: Board, tmp_path: Path, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exchange:
        monkeypatch.setattr(edit_module, "_rename_call", None)
    path = put(board, "7.md")
    (tmp_path / "elsewhere").mkdir()
    archive_of(board).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanFileError, match="is a link or not a directory"):
        board.archive(7, put_away)
    assert path.exists()
    archive_of(board).unlink()
    assert Path(board.archive(7, put_away).path).parent == archive_of(board)
    assert not path.exists()


def test_what_may_not_be_put_away_stays_where_it_is(board: Board) -> None:
    path = put(board, "7.md")

    def refuse(_: Task) -> Changes:
        raise TransitionError("in-progress", "archived")

    with pytest.raises(TransitionError):
        board.archive(7, refuse)
    assert path.read_text() == TASK
    with pytest.raises(TaskMissingError, match="task #8 not found"):
        board.archive(8, put_away)


def at_every_step(directory: str, way: str) -> list[tuple[str, list[str], list[str]]]:
    """Put a task away, each time with something happening at another line of the editor.

    Return what was saved meanwhile, and what there is afterwards, of the task and in the archive.
    """
    import os
    import signal
    import sys
    from unittest import mock

    mock.patch.object(os, "fsync").start()  # a killed process loses nothing that it wrote
    board = Board(Path(directory))
    path, archive = Path(directory) / "7.md", archive_of(board)
    found: list[tuple[str, list[str], list[str]]] = []
    stride = 20 // scaled(20) // 4 or 1  # at full size every line, else some of them
    for step in range(1, 10_000, stride):
        for each in (*path.parent.iterdir(), *(archive.iterdir() if archive.exists() else ())):
            each.unlink()
        path.write_text(TASK.replace("todo", "archived"))
        left = step
        child = os.fork()
        if child == 0:

            def trace(frame: Any, event: str, _: object) -> Any:
                nonlocal left
                if frame.f_code.co_filename != edit_module.__file__:
                    return None
                left -= event == "line"
                if left == 0 and way == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif left == 0:
                    save(path)
                return trace

            sys.settrace(trace)
            with suppress(EditConflictError, TaskMissingError):
                board.archive(7, put_away)
            sys.settrace(None)
            os._exit(3 if left > 0 else 0)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3:
            return found
        here = [each.read_text() for each in path.parent.iterdir() if each.suffix == ".md"]
        there = [each.read_text() for each in archive.iterdir()] if archive.exists() else []
        found.append(("" if way == "kill" else SAVED, here, there))
    raise AssertionError("it never ends")


SAVED = TASK.replace("In rows.", "In rows of ten.")


def save(path: Path) -> None:
    """Save the task as most editors do."""
    draft = path.with_name("draft")
    draft.write_text(SAVED)
    draft.replace(path)


@pytest.mark.parametrize("way", ["kill", "save"])
def test_whatever_happens_while_a_task_is_put_away_no_text_is_lost(board: Board, way: str) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(at_every_step, (board.directory, way))
    assert len(found) > 8
    old = TASK.replace("todo", "archived")
    if way == "kill":
        # In one of the two places, whole; never in none.
        assert all([*here, *there] == [old] for _, here, there in found)
        assert found[0][1:] == ([old], [])
        assert found[-1][1:] == ([], [old])
        return
    changed = SAVED.replace("todo", "archived")
    for _, here, there in found:
        assert {*here, *there} <= {old, SAVED, changed}
        assert {*here, *there} & {SAVED, changed}, "what a person saved is there"


def test_a_task_that_somebody_writes_to_is_not_put_away(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit_module, "_LEASE_ATTEMPTS", 1)
    monkeypatch.setattr(tasks_module, "_ATTEMPTS", 3)
    path = put(board, "7.md", TASK.replace("todo", "archived"))
    with path.open("a"), pytest.raises(EditConflictError, match="saved repeatedly"):
        board.archive(7, put_away)
    assert path.exists()
    assert not list(archive_of(board).iterdir())


# Two at once


def count_up(directory: str, key: str, times: int) -> None:
    """Count a field up, so many times."""
    board = Board(directory)
    for _ in range(times):
        board.change(7, lambda task: {key: (task.number(key) or 0) + 1, f"{key}-at": "now"})


def add_some(directory: str, name: str, times: int) -> None:
    board = Board(directory)
    for number in range(times):
        board.add(f"{name} {number}", {"status": "todo"})


def test_two_processes_that_edit_one_task_lose_nothing(board: Board) -> None:
    path = put(board, "7.md")
    times = scaled(1_000)
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(target=count_up, args=(board.directory, key, times))
        for key in ("claim_extensions", "last_output_bytes")
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    task = board.card(7).task
    assert task.number("claim_extensions") == times
    assert task.number("last_output_bytes") == times
    assert task.body == read(TASK).body
    assert [each.name for each in path.parent.iterdir()] == ["7.md"]


def test_two_processes_that_add_tasks_never_take_one_number_twice(board: Board) -> None:
    times = scaled(200)
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(target=add_some, args=(board.directory, name, times)) for name in ("a", "b")
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert [task.id for task in board.read().tasks] == list(range(1, 2 * times + 1))
