"""Packages import only what is below them, and pure code stays pure."""

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

# Package -> the packages it may import, besides itself. `errors` may be imported by all.
LAYERS = {
    "timing": set(),
    "org": {"timing"},
    "core": {"timing", "org"},
    "files": {"timing", "org", "core"},
    "process": {"timing", "org", "core"},
    "store": {"timing", "org", "core"},
    "cluster": {"timing", "org", "core"},
    "sources": {"timing", "org", "core", "files", "process"},
    "extras": {"timing", "org", "core", "files", "sources", "testing"},
    "web": {"timing", "org", "core", "files", "process", "sources", "app", "config", "context"},
}
# The modules beside the packages: settings, what is made of them, and the whole.
LAYERS["config"] = {"timing", "org", "core", "files", "process", "store"}
LAYERS["context"] = LAYERS["config"] | {"sources", "cluster", "config"}
LAYERS["app"] = LAYERS["context"] | {"extras", "context"}
LAYERS["node"] = LAYERS["node_requests"] = LAYERS["app"] | {"app", "web", "node", "node_requests"}
LAYERS["testing"] = {"core"}
# Of web only where the socket is, of sources only what they answer.
LAYERS["client"] = {"core", "timing", "config", "web", "sources"}
LAYERS["errors"] = set()
# In a source these know the command line or the web layer.
ADAPTERS = {
    "agent_cli.py",
    "client.py",
    "commands.py",
    "routes.py",
    "page.py",
    "batty.py",
}
ADAPTED = {"cli", "client", "web", "config", "app", "context"}
# Modules of a layer that may know the world; all others of timing, org, core and rules.py are pure.
IMPURE_CORE = {
    "access", "actor", "clock", "engine", "explain", "launch", "ports", "private",
    "service", "settings", "spending",
}  # fmt: skip
PURE_FILES = {
    "files": {"yaml"},
    "sources/board": {"rules", "task", "dispatch", "recycle"},
    "sources/crew": {"rules", "lifecycle", "briefing"},
    "sources/plans": {"arming", "check"},
    "sources/triggers": {"rules", "kinds", "files", "webhook"},
    "web": {"ics"},
}
# What would make the same arguments give another answer.
IMPURE_MODULES = {
    "asyncio", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
IMPURE_CALLS = {
    "now", "today", "utcnow", "open", "print", "input", "getenv", "exec", "eval",
}  # fmt: skip


def package(module: str) -> str:
    """Return the package of a module: its first name, for a source the first two.

    >>> package("horae.core.engine"), package("horae.sources.board.rules")
    ('core', 'sources.board')
    """
    names = module.split(".")[1:]
    return ".".join(names[: 2 if names[0] == "sources" else 1])


def pure() -> Iterator[Path]:
    for name in ("timing", "org"):
        yield from sorted((SOURCE / name).rglob("*.py"))
    for path in sorted((SOURCE / "core").glob("*.py")):
        if path.stem not in IMPURE_CORE:
            yield path
    for folder, names in PURE_FILES.items():
        yield from (SOURCE / folder / f"{name}.py" for name in sorted(names))
    for name in ("drift", "exporters", "importers"):
        yield from sorted((SOURCE / "extras" / name).rglob("*.py"))


class Used(NamedTuple):
    """What a module uses, with lines: what it imports, and what it calls, in full and by its last name."""

    imports: tuple[tuple[int, str], ...]
    calls: tuple[tuple[int, str, str], ...]


@cache
def used(path: Path) -> Used:
    imports, calls = [], []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            imports += [(node.lineno, f"{node.module}.{each.name}") for each in node.names]
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name):
                    calls.append((node.lineno, name, name))
                case ast.Attribute(value=ast.Name(id=owner), attr=name):
                    calls.append((node.lineno, f"{owner}.{name}", name))
                case ast.Attribute(attr=name):
                    calls.append((node.lineno, "", name))
    return Used(tuple(imports), tuple(calls))


def crossings() -> Iterator[tuple[str, str]]:
    """Yield each import that the layers forbid: the module, and the package that it imports."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("horae", *path.relative_to(SOURCE).with_suffix("").parts))
        here = package(module)
        if here.split(".")[0] not in LAYERS:
            continue
        for _line, name in used(path).imports:
            if not name.startswith("horae."):
                continue
            other = package(name)
            allowed = LAYERS[here.split(".")[0]] | {here, "errors", "__version__", "sources.late"}
            if path.name in ADAPTERS:
                allowed = allowed | ADAPTED
            if other not in allowed and other.split(".")[0] not in allowed:
                yield module.removeprefix("horae."), other


def test_a_package_imports_only_the_layers_below_it() -> None:
    assert sorted(set(crossings())) == []


@pytest.mark.parametrize("path", list(pure()), ids=lambda path: str(path.relative_to(SOURCE)))
def test_pure_code_uses_no_clock_disk_network_randomness_or_event_loop(path: Path) -> None:
    for line, name in used(path).imports:
        assert name.split(".")[0] not in IMPURE_MODULES, f"{path}:{line}: {name} is impure"
    for line, _, name in used(path).calls:
        assert name not in IMPURE_CALLS, f"{path}:{line}: {name}() is impure"


def test_every_package_and_module_has_a_layer() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert packages | modules <= LAYERS.keys() | {"cli", "__init__", "__main__"}


def test_only_the_command_line_knows_click() -> None:
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if place.parts[0] != "cli" and path.name not in ADAPTERS:
            known = {name.split(".")[0] for _, name in used(path).imports}
            assert not known & {"click", "rich"}, place


def test_only_one_place_asks_the_machine_for_the_time() -> None:
    asked = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time"}
    asking = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(full in asked for _, full, _ in used(path).calls)
    }
    # A supervisor is a process of its own, and notes when its command has put something out.
    assert asking == {"core/clock.py", "process/output.py"}


def test_what_is_written_into_a_file_goes_through_the_editor() -> None:
    writing = {"write_text", "write_bytes", "rename", "replace", "unlink", "rmtree", "mkstemp"}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).as_posix() == "files/edit.py":
            continue
        for line, _, name in used(path).calls:
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


@cache
def helpers(path: Path) -> frozenset[str]:
    """Return the functions of a module, and of those of ours that it imports, that assert."""
    found = [path]
    for line in path.read_text().splitlines():
        if line.startswith("from "):
            near = TESTS / f"{line.split()[1].replace('.', '/')}.py"
            found += [near] if near.exists() else []
    return frozenset(each.name for file in found for each in told(file) if each.asserts)


def test_every_test_asserts_something() -> None:
    idle = [
        f"{path.relative_to(TESTS)}:{each.line}: {each.name}"
        for path in sorted(TESTS.rglob("*.py"))
        for each in told(path)
        if each.name.startswith("test_") and not each.asserts and not each.calls & helpers(path)
    ]
    assert idle == []


_NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`")


def test_the_architecture_names_only_what_exists() -> None:
    page = (TESTS.parent / "ARCHITECTURE.md").read_text()
    places = (SOURCE, TESTS.parent)
    # Files that a source may have are named without their package.
    anywhere = {path.name for path in SOURCE.rglob("*.py")}
    missing = [
        name
        for name in _NAMED.findall(page)
        if name not in anywhere and not any((place / name).exists() for place in places)
    ]
    assert missing == []
    assert len(page.splitlines()) <= 250
