"""The rooms point inward, and the pure ones stay pure."""

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import horae

SOURCE = Path(horae.__file__).parent
TESTS = Path(__file__).parent

# Room -> the rooms it may know, besides itself. `errors` is known by all.
DOORS = {
    "kernel": set(),
    "timing": set(),
    "rules": {"kernel", "timing"},
    "engine": {"kernel", "timing", "rules"},
    "store": {"kernel", "timing", "rules", "engine"},
    "runner": {"kernel", "timing", "rules", "engine"},
    "workspace": {"kernel", "timing", "rules", "engine"},
    "server": {"kernel", "timing", "rules", "engine", "app"},
    "extras": {"kernel", "timing", "rules", "engine"},  # optional: only `cli` and `app` know it
}
PURE = ("kernel", "timing", "rules", "extras/drift", "extras/exporters", "extras/importers")
# What would make the same arguments give another answer.
IMPURE_MODULES = {
    "asyncio", "http", "io", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
IMPURE_CALLS = {
    "now", "today", "utcnow", "open", "print", "input", "getenv", "exec", "eval",
}  # fmt: skip


def modules(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.lineno, f"{node.module}.{node.names[0].name}"


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else None
            name = function.id if isinstance(function, ast.Name) else name
            if name is not None:
                yield node.lineno, name


@pytest.mark.parametrize("room", [room for room in DOORS if (SOURCE / room).is_dir()])
def test_a_room_knows_only_the_rooms_inside_it(room: str) -> None:
    for path in modules(room):
        for line, name in imports(path):
            if name.startswith("horae."):
                other = name.split(".")[1]
                allowed = DOORS[room] | {room, "errors"}
                assert other in allowed, f"{path}:{line}: {room} must not know {other}"


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_uses_no_clock_disk_network_randomness_or_event_loop(room: str) -> None:
    for path in modules(room):
        for line, name in imports(path):
            assert name.split(".")[0] not in IMPURE_MODULES, f"{path}:{line}: {name} is impure"
        for line, name in calls(path):
            assert name not in IMPURE_CALLS, f"{path}:{line}: {name}() is impure"


def test_every_room_in_the_house_is_in_the_drawing() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= DOORS.keys() | {"cli"}


def test_only_one_place_asks_the_machine_for_the_time() -> None:
    asked = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time"}
    asking = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in asked
    }
    assert asking == {"app.py"}


def test_what_is_written_into_a_file_goes_through_the_editor() -> None:
    writing = {"write_text", "write_bytes", "rename", "replace", "unlink", "rmtree", "mkstemp"}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).as_posix() == "files/edit.py":
            continue
        for line, name in calls(path):
            is_text_method = name == "replace"  # str.replace and datetime.replace write nothing
            assert is_text_method or name not in writing, f"{path}:{line}: {name}() writes"


def test_the_public_face_is_short_and_sorted() -> None:
    assert list(horae.__all__) == sorted(horae.__all__)
    for name in horae.__all__:
        assert getattr(horae, name).__doc__, f"{name} says what it is for"


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'horae' has no attribute 'chronos'"):
        horae.chronos  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_hides_unfinished_work() -> None:
    marks = ("TO" + "DO:", "FIX" + "ME", "XX" + "X")
    for path in SOURCE.rglob("*.py"):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT:
                    assert not any(mark in token.string for mark in marks), (
                        f"{path}:{token.start[0]}"
                    )


# That tests assert


_ASSERT = re.compile(r"^ *assert\b", re.MULTILINE)
_CALL = re.compile(r"(\w+)\(")


class Told(NamedTuple):
    """What a function of a test does: the names it calls, and whether it asserts itself."""

    name: str
    line: int
    calls: frozenset[str]
    asserts: bool


@cache
def told(path: Path) -> tuple[Told, ...]:
    """Return what the functions of a module do, and the methods of its classes."""
    text = path.read_text()
    lines = text.splitlines()
    top = ast.parse(text).body
    inner = [node for each in top if isinstance(each, ast.ClassDef) for node in each.body]
    found = []
    for node in (*top, *inner):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = "\n".join(lines[node.lineno : node.end_lineno])
            calls = frozenset(_CALL.findall(body))
            asserts = bool(_ASSERT.search(body) or calls & {"raises", "warns", "fail"})
            found.append(Told(node.name, node.lineno, calls, asserts))
    return tuple(found)


def helpers(path: Path) -> set[str]:
    """Return the functions of a module, and of those of ours that it imports, that assert."""
    found = [path]
    for line in path.read_text().splitlines():
        if line.startswith("from "):
            near = TESTS / f"{line.split()[1].replace('.', '/')}.py"
            found += [near] if near.exists() else []
    return {each.name for file in found for each in told(file) if each.asserts}


def test_every_test_asserts_something() -> None:
    idle = [
        f"{path.relative_to(TESTS)}:{each.line}: {each.name}"
        for path in sorted(TESTS.rglob("*.py"))
        for each in told(path)
        if each.name.startswith("test_") and not each.asserts and not each.calls & helpers(path)
    ]
    assert idle == []
