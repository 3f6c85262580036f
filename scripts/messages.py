"""List every text that a user of Horae can meet: `python scripts/messages.py [PATH ...]`.

Help, errors and remedies, findings, reasons, log lines, prompts, generated files, the page: what
stands in a string of two words or more. Left out are docstrings (except those that become the help
of a command or the description of a route), assertions, types, patterns and SQL. A value inside a
text is shown as {}.
"""
# ruff: noqa: INP001

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src" / "horae"
VOCABULARY: Final = "lexicon.py"  # words that are looked for in plans
FILES: Final = {".md", ".org", ".sh", ".toml", ".yml"}  # of the demo, which users read and edit

_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_SQL: Final = re.compile(r"\s*(?:--|ALTER|CREATE|DELETE|DROP|INSERT|PRAGMA|SELECT|UPDATE|WITH) ")
# Calls whose texts are not shown: patterns, types, names of loggers.
_SILENT: Final = {"cast", "compile", "fullmatch", "getLogger", "match", "search", "sub", "TypeVar"}
_CLICK: Final = {"command", "group"}
_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, *_FUNCTION)

_COMMENT: Final = re.compile(r"\{#.*?#\}|<!--.*?-->", re.DOTALL)
_JINJA: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_SHOWN: Final = re.compile(r"""(?:alt|aria-label|content|data-\w+|placeholder|title)="([^"]*)\"""")
_TAG: Final = re.compile(r"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
_QUOTED: Final = re.compile(r"""("|'|`)((?:\\.|(?!\1).)*)\1""")
_JS_COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)


class Message(NamedTuple):
    """A text, and where it is written."""

    path: Path
    line: int
    text: str

    @property
    def place(self) -> str:
        """Return the file, relative to the project, and the line."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}"


def messages(*paths: Path) -> Iterator[Message]:
    """Yield the texts in files, and in directories with all they contain; default: the source."""
    for path in paths or (SOURCE,):
        files = sorted(each for each in path.rglob("*") if each.is_file()) or [path]
        for file in files:
            read = _READERS.get(file.suffix)
            if read is not None and file.name != VOCABULARY:
                found = sorted(read(file.read_text("utf-8")))
                yield from (Message(file, line, text) for line, text in found)


def is_prose(text: str) -> bool:
    """Tell whether a text has two words or more, and is for people.

    >>> is_prose("no engine runs"), is_prose("scheduled_for"), is_prose("SELECT id FROM entry")
    (True, False, False)
    """
    return len(_WORD.findall(text)) > 1 and " " in text.strip() and not _SQL.match(text)


# Python


def python(source: str) -> Iterator[tuple[int, str]]:
    r"""Yield the texts of a module, with their lines.

    >>> list(python('def f():\n    "Return more."\n    raise Bad(f"{name} is not a name")'))
    [(3, '{} is not a name')]
    """
    tree = ast.parse(source)
    silent = set(_silent(tree))
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        text = _text(node)
        if text is not None and is_prose(text):
            yield node.lineno, " ".join(text.split())  # type: ignore[attr-defined]


def _text(node: ast.AST) -> str | None:
    """Return what a node of the tree says, if it is a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "{}" for each in node.values)
    return None


def _silent(tree: ast.Module) -> Iterator[int]:
    """Yield the identities of the nodes that are not messages, or only a part of one."""
    # What is said about the field of a request stands in its type.
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    about = {id(part) for each in calls if _called(each) == "about" for part in ast.walk(each)}
    for node in ast.walk(tree):
        unread: list[ast.AST | None] = []
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            is_read = isinstance(node, _FUNCTION) and _is_read(node)
            unread += [] if is_read else [node.body[0]]
        if isinstance(node, _FUNCTION):
            unread.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            is_alias = node.annotation is not None and ast.unparse(node.annotation) == "TypeAlias"
            unread.append(node if is_alias else node.annotation)
        elif isinstance(node, ast.Assert):
            unread.append(node.msg)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            unread.append(node.slice)
        elif isinstance(node, ast.Call) and _called(node) in _SILENT:
            unread += node.args
        elif isinstance(node, ast.JoinedStr):
            yield from (id(each) for each in node.values if isinstance(each, ast.Constant))
            values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
            unread += [each.format_spec for each in values]
        for each in unread:
            if each is not None:
                yield from (found for found in map(id, ast.walk(each)) if found not in about)


def _is_read(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether users read a docstring: of a command or a group of click, or of a route."""
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    found = [each for each in called if isinstance(each, ast.Attribute)]
    return any(each.attr in _CLICK or ast.unparse(each.value) == "routes" for each in found)


def _called(call: ast.Call) -> str:
    """Return the last name of what a call calls."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


# The page, and the files of the demo


def html(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a template: between the tags, in what is shown of them, and in Jinja.

    >>> list(html('<p title="Time of day">{{ "in a minute" if soon }} <b>Next</b> run</p>'))
    [(1, 'in a minute'), (1, 'Time of day'), (1, '{} Next run')]
    """
    source = _COMMENT.sub(_blank, source)
    for found in _JINJA.finditer(source):
        for quoted in _QUOTED.finditer(found[0]):
            yield from _line(source, found.start() + quoted.start(), quoted[2])
    plain = _JINJA.sub(lambda found: "{}".ljust(len(found[0]), "\0"), source)
    for shown in _SHOWN.finditer(plain):
        yield from _line(source, shown.start(), shown[1])
    for number, line in enumerate(_TAG.sub(_blank, plain).split("\n"), 1):
        yield from _line("\n" * number, number - 1, line)


def script(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts in a script of the page."""
    source = _JS_COMMENT.sub(_blank, source)
    for quoted in _QUOTED.finditer(source):
        yield from _line(source, quoted.start(), quoted[2])


def lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that is read as it stands."""
    for number, line in enumerate(source.split("\n"), 1):
        yield from _line("\n" * number, number - 1, line)


def _line(source: str, position: int, text: str) -> Iterator[tuple[int, str]]:
    said = " ".join(text.replace("\0", "").split())
    if is_prose(said):
        yield source.count("\n", 0, position) + 1, said


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


_READERS: Final = {".py": python, ".html": html, ".js": script, **dict.fromkeys(FILES, lines)}


if __name__ == "__main__":
    for message in messages(*map(Path, sys.argv[1:])):
        print(f"{message.place}: {message.text}")  # noqa: T201
