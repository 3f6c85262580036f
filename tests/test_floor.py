"""The oldest Python that we name reads what every other reads."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path
from re import _constants as sre, _parser
from typing import TYPE_CHECKING, Any

import pytest

import horae
from horae.org.document import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parent.parent
# A group that is repeated possessively, or that gives nothing back.
BROKEN = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")


def patterns() -> Iterator[tuple[str, str | bytes, int]]:
    """Yield every pattern that a module of ours holds, and each text that may become one."""
    for module in pkgutil.walk_packages(horae.__path__, "horae."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value.pattern, value.flags
            elif isinstance(value, str) and "+" in value:
                yield f"{module.name}.{name}", value, 0


def is_broken(parsed: Any) -> bool:
    """Tell whether a pattern repeats more than one character possessively, or holds it fast."""
    for operation, argument in parsed:
        if operation is sre.ATOMIC_GROUP:
            return True
        if operation is sre.POSSESSIVE_REPEAT:
            inner = argument[2]
            if len(inner) != 1 or inner[0][0] in {sre.SUBPATTERN, sre.BRANCH}:
                return True
        flat = argument if isinstance(argument, tuple | list) else ()
        nested = [part for each in flat for part in (each if isinstance(each, list) else [each])]
        if any(isinstance(part, _parser.SubPattern) and is_broken(part) for part in nested):
            return True
    return False


def test_no_pattern_repeats_a_group_possessively() -> None:
    found = []
    for name, text, flags in patterns():
        try:
            parsed = _parser.parse(text, flags)
        except (re.error, ValueError):
            continue  # a text that is no pattern
        if is_broken(parsed):
            found.append(name)
    assert found == []


def test_no_text_that_may_become_a_pattern_does() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        if BROKEN.search(text := path.read_text())  # it stands in one line, as it is written
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and BROKEN.search(str(node.value))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", [r"(?:ab|c)*+", r"(ab)++", r"(?:a+b)?+", r"(?>a+)", r"x(?:(a?)*+)"]
)
def test_what_is_broken_is_found(text: str) -> None:
    assert is_broken(_parser.parse(text))
    assert BROKEN.search(text)


@pytest.mark.parametrize("lines", [1, 63, 64, 65, 128, 1_000])
def test_a_drawer_of_any_length_is_read_whole(lines: int) -> None:
    inside = "".join(f":K{n}: v\n" for n in range(lines))
    (found,) = read(f"* Sow\n:PROPERTIES:\n{inside}:END:\nProse.\n").headlines
    assert len(found.props) == lines
    assert found.text[found.body :] == "Prose.\n"
    (void,) = read(f"* Sow\n:PROPERTIES:\n{inside}prose\n:END:\n").headlines
    assert void.drawer is None


# The floor check


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("floor", ROOT / "scripts" / "floor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_an_older_python_the_floor_is_not_run_and_passes(
    floor: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(floor, "candidates", lambda: [sys.executable, "/nowhere/python3"])
    assert floor.main() == 0
    assert capsys.readouterr().out.startswith("floor not run")


def test_the_oldest_is_taken_and_of_equals_the_distributions(
    floor: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"/usr/bin/python3": (3, 11, 0), "b": (3, 11, 0), "c": (3, 11, 4), "d": None}
    monkeypatch.setattr(floor, "candidates", lambda: [*versions])
    monkeypatch.setattr(floor, "version_of", versions.get)
    monkeypatch.setattr(sys, "version_info", (3, 11, 1))
    assert floor.oldest() == ((3, 11, 0), "/usr/bin/python3")


def test_another_minor_version_runs_what_needs_no_compiled_package(floor: ModuleType) -> None:
    every = floor.runnable(sys.version_info[:3])
    assert [each for each in every if not (ROOT / each).is_file()] == []
    pure = floor.runnable((3, 99, 0))
    assert "tests/org/test_grammar.py" in pure
    assert {*every} - {*pure} >= {"tests/files/test_yaml.py", "tests/org/test_document.py"}


def test_the_distributions_own_python_is_asked_first(floor: ModuleType) -> None:
    assert floor.candidates()[0] == "/usr/bin/python3"
