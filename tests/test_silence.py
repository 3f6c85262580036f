"""No error is dropped in silence: what is suppressed is logged, or a comment says why not.

It holds for every `suppress(…)` and for every `except` that is as broad as `Exception`. One that
raises again drops nothing. Pure code does not log (see the layers):
there an error becomes a value or another error.
"""

from __future__ import annotations

import ast
import re
import tokenize
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import horae

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(horae.__file__).parent
BROAD = {"Exception", "BaseException"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
# What is no reason: a word for a tool.
TOOL = re.compile(r"#\s*(noqa|type:|pragma|fmt:)")


def comments(lines: list[str]) -> list[str]:
    """Return the comments in the head of a block; a line of code is not one."""
    tokens = tokenize.generate_tokens(iter([f"{line.lstrip()}\n" for line in lines]).__next__)
    found = []
    with suppress(tokenize.TokenError):  # a head alone is no whole block
        found = [each.string for each in tokens if each.type == tokenize.COMMENT]
    return [each for each in found if not TOOL.match(each)]


def is_suppress(node: ast.expr) -> bool:
    name = node.func if isinstance(node, ast.Call) else None
    return isinstance(name, ast.Name | ast.Attribute) and "suppress" in (
        getattr(name, "id", ""),
        getattr(name, "attr", ""),
    )


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD) for kind in kinds)


def logs(handler: ast.ExceptHandler) -> bool:
    calls = (node.func for node in ast.walk(handler) if isinstance(node, ast.Call))
    return any(
        isinstance(call, ast.Attribute)
        and call.attr in LEVELS
        and isinstance(call.value, ast.Name)
        and call.value.id == "log"
        for call in calls
    )


def drops(node: ast.AST) -> bool:
    """Tell whether a statement drops errors and does not log them."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return any(is_suppress(item.context_expr) for item in node.items)
    if not isinstance(node, ast.ExceptHandler) or not is_broad(node):
        return False
    return not isinstance(node.body[-1], ast.Raise) and not logs(node)


def silent(text: str) -> Iterator[int]:
    """Yield the lines where an error is dropped, is not logged, and no comment says why."""
    lines = text.splitlines()
    if "suppress" not in text and "except" not in text:
        return
    for node in filter(drops, ast.walk(ast.parse(text))):
        assert isinstance(node, ast.With | ast.AsyncWith | ast.ExceptHandler)
        first = node.lineno
        if lines[first - 2].lstrip().startswith("#"):
            first -= 1
        if not comments(lines[first - 1 : node.body[0].lineno - 1]):
            yield node.lineno


def test_what_is_suppressed_is_logged_or_a_comment_says_why_not() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in silent(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_every_suppress_is_the_head_of_a_block() -> None:
    """Else the test above would not see it."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "suppress" not in (text := path.read_text()):
            continue
        nodes = [*ast.walk(ast.parse(text))]
        calls = {id(node) for node in nodes if isinstance(node, ast.Call) and is_suppress(node)}
        heads = {
            id(item.context_expr)
            for node in nodes
            if isinstance(node, ast.With | ast.AsyncWith)
            for item in node.items
        }
        assert calls <= heads, path


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("with suppress(OSError):\n    close()\n", [1]),
        ("with suppress(OSError):  # it is closed\n    close()\n", []),
        ("# It is closed.\nwith contextlib.suppress(OSError):\n    close()\n", []),
        ("with suppress(OSError):  # noqa: S110\n    close()\n", [1]),
        ("with suppress(OSError):\n    close()  # at last\n", [1]),
        ("try:\n    go()\nexcept Exception:\n    stop()\n", [3]),
        ("try:\n    go()\nexcept (OSError, BaseException):\n    stop()\n", [3]),
        ("try:\n    go()\nexcept:\n    stop()\n", [3]),
        ("try:\n    go()\nexcept Exception as error:\n    log.warning('no: %s', error)\n", []),
        ("try:\n    go()\nexcept BaseException:\n    stop()\n    raise\n", []),
        ("try:\n    go()\nexcept OSError:\n    stop()\n", []),
    ],
)
def test_the_reader_of_this_test_sees_what_is_silent(text: str, lines: list[int]) -> None:
    assert [*silent(text)] == lines
