"""The guard for all YAML: text in, plain text values and their places out.

A YAML library that builds data can crash the process (100,000 open brackets), run for hours (merge
keys) or turn `012` into 10. So only the library's events are used, one at a time, and reading ends
at the limits of depth and size, before the library has parsed the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from horae.errors import HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml

MAX_BYTES: Final = 1024 * 1024  # of one text, as UTF-8
MAX_DEPTH: Final = 64  # nested collections
MAX_NODES: Final = 50_000  # keys and values: bounds time and memory

Data: TypeAlias = "str | list[Data] | YamlMap | None"


class YamlError(HoraeError, code="yaml"):
    def __init__(
        self, reason: str, fix: str, line: int, column: int, *, name: str, first_line: int | None
    ) -> None:
        self.reason, self.fix = reason, fix
        self.line, self.column = line, column
        self.name = name
        self.first_line = first_line  # the line of the first of two equal keys
        where = f"{name}:{line}:{column}" if name else f"line {line}, column {column}"
        super().__init__(f"{where}: {reason}; {fix}")


class YamlPlace(NamedTuple):
    """The place of a key and its value: line and column from 1, offsets in the text from 0."""

    line: int
    column: int
    key: int  # offset of the key
    start: int  # the value is text[start:end], quotes and brackets included;
    end: int  # a missing one is empty and follows the colon


class YamlMap(dict[str, "Data"]):
    __slots__ = ("places",)

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, YamlPlace] = {}


def read_yaml(
    text: str, *, name: str = "", line: int = 1, limit: int = MAX_BYTES, depth: int = MAX_DEPTH
) -> Data:
    r"""Return the data of one YAML document, or raise YamlError.

    Every scalar is text, including `null` and `~`; only a missing value is None. *name* and *line*
    are the name of the text and the line of its file on which it begins.

    >>> read_yaml("id: 042\nwhen: 2026-13-45\nowner:\ntags: [on, '']")
    {'id': '042', 'when': '2026-13-45', 'owner': None, 'tags': ['on', '']}
    >>> read_yaml("cron_schedule: */5 * * * *", name="task.md", line=2)
    Traceback (most recent call last):
    horae.files.yaml.YamlError: task.md:2:16: a value cannot begin with *; put it in quotes
    """
    source = _YamlText(text, name=name, line=line)
    _measure(source, limit=limit)
    return _YamlReader(source, depth=depth).data()


class _YamlText:
    def __init__(self, text: str, *, name: str, line: int) -> None:
        self.body = text.removeprefix("\ufeff")
        self.bom = len(text) - len(self.body)
        self.name = name
        self.line = line

    def error(self, index: int, reason: str, fix: str, first: int | None = None) -> YamlError:
        line = self.line + self.body.count("\n", 0, index)
        column = index - self.body.rfind("\n", 0, index)
        return YamlError(reason, fix, line, column, name=self.name, first_line=first)


# What YAML does not allow; line ends of some readers and not of others (a
# hidden line could contain a hidden key); surrogates; a byte-order mark inside the text.
_STRANGE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]|\r(?!\n)"
)
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)


def _measure(source: _YamlText, *, limit: int) -> None:
    """Refuse what the library must not parse; this does not depend on quotes or comments."""
    body = source.body
    # Characters first: they are never more than the bytes, and surrogates have no bytes.
    if len(body) > limit or (not body.isascii() and len(body.encode(errors="replace")) > limit):
        reason = f"more than {limit:,} bytes of YAML"
        raise source.error(0, reason, "keep long text in a file of its own")
    if strange := _STRANGE.search(body):
        reason = f"an invisible character, U+{ord(strange[0]):04X}"
        fix = "remove it, write an escape in double quotes, or end lines with LF or CRLF"
        raise source.error(strange.start(), reason, fix)
    if directive := _DIRECTIVE.search(body):
        reason = "a line that begins with % (a directive)"
        raise source.error(directive.start(), reason, "remove it, or indent the text")


class _YamlReader:
    """Reads one document by recursion over its nodes, at most *depth* deep."""

    def __init__(self, source: _YamlText, *, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._nodes = 0
        self._events = _events(source)

    def data(self) -> Data:
        found: list[Data] = []
        for event in self._events:
            if type(event).__name__ == "DocumentStartEvent":
                if found:
                    raise self._refuse(event, "a second document", "keep only one document")
                found.append(self._node(next(self._events), 0)[0])
        return found[0] if found else None

    def _node(self, event: Any, level: int) -> tuple[Data, int, int]:
        is_scalar = self._is_scalar(event)
        start, end = event.start_mark.index, event.end_mark.index
        if is_scalar:
            if event.style in {"|", ">"}:  # the library includes the empty lines after it
                end = start + len(self._source.body[start:end].rstrip(" \t\r\n"))
            return event.value if event.value or event.style else None, start, end
        if level == self._depth:
            raise self._refuse(event, f"more than {self._depth} levels", "reduce the nesting")
        is_flow, end = event.flow_style, start
        node: list[Data] | YamlMap = [] if "Sequence" in type(event).__name__ else YamlMap()
        while not type(event := next(self._events)).__name__.endswith("EndEvent"):
            if isinstance(node, YamlMap):
                end = self._pair(event, node, level + 1)
            else:
                value, _, end = self._node(event, level + 1)
                node.append(value)
        # A block ends with its last value; the library includes the comments below, too.
        return node, start, event.end_mark.index if is_flow else end

    def _pair(self, event: Any, node: YamlMap, level: int) -> int:
        """Add the key of an event, and the value after it, to a map; return its end."""
        if not self._is_scalar(event):
            raise self._refuse(event, "a list or mapping as a key", "write `key: value`")
        key, source, mark = event.value, self._source, event.start_mark
        if key == "<<" and not event.style:
            reason = "a merge key (<<), which is not supported"
            raise self._refuse(event, reason, "write the keys out")
        if key == "" and not event.style:
            raise self._refuse(event, "a value without a key", "write `key: value`")
        # So every value follows a colon; `? key` and `{key}` have none.
        colon = _COLON.match(source.body, event.end_mark.index)
        if colon is None:
            raise self._refuse(event, "a key without a colon and a space", "write `key: value`")
        if key in node:
            first = node.places[key]
            reason = f"the key {key[:40]!r} is already at line {first.line}, column {first.column}"
            raise source.error(mark.index, reason, "keep one of the two", first.line)
        value, start, end = self._node(next(self._events), level)
        if value is None:
            start = end = colon.end()  # the library's mark may be inexact
        at = (source.line + mark.line, mark.column + 1)
        node[key] = value
        node.places[key] = YamlPlace(*at, *(source.bom + each for each in (mark.index, start, end)))
        return end

    def _is_scalar(self, event: Any) -> bool:
        """Return whether an event is a scalar or begins a collection; others are refused."""
        kind = type(event).__name__
        out = "write the value out, or quote it"
        if kind == "AliasEvent":
            raise self._refuse(event, "an alias (*), which is not supported", out)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            reason = f"more than {MAX_NODES:,} keys and values"
            raise self._refuse(event, reason, "split it into several files")
        if event.anchor is not None:
            raise self._refuse(event, "an anchor (&), which is not supported", out)
        if event.tag is not None:
            reason = "a tag (!), which is not supported"
            raise self._refuse(event, reason, "leave it out, or quote the value")
        # The Python reader of the library, unlike its C reader, accepts these.
        is_scalar = kind == "ScalarEvent"
        if is_scalar and event.style == '"' and _SURROGATE.search(event.value):
            reason = "an escape for an unpaired surrogate"
            raise self._refuse(event, reason, "write the whole character")
        return is_scalar

    def _refuse(self, event: Any, what: str, fix: str) -> YamlError:
        return self._source.error(event.start_mark.index, what, fix)


_COLON = re.compile(r"[ \t]*:")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _events(source: _YamlText) -> Iterator[Any]:
    """Yield the library's events; all its errors become YamlErrors."""
    import yaml  # commands that read no YAML must not load the library

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        yield from yaml.parse(source.body, Loader=loader)
    except yaml.MarkedYAMLError as error:
        raise _explain(source, error) from None
    except Exception as error:
        reason = f"YAML that cannot be read ({type(error).__name__})"
        raise source.error(0, reason, "simplify it") from error


_FIX: Final = "quote the value, or correct the indentation"
# Messages of the library (parts that its C and Python readers share), and ours.
_INDENT: Final = "correct the indentation, and quote values"
_PROBLEMS: Final = (
    ("a tab", "a tab where only spaces are allowed", "indent with spaces"),
    ("an alias", "a value cannot begin with *", "put it in quotes"),
    ("an anchor", "a value cannot begin with &", "put it in quotes"),
    (" tag", "a value cannot begin with !", "put it in quotes"),
    ("escape", "an unknown escape", "write \\\\ for a backslash, or use single quotes"),
    ("quoted scalar", "a quote that is not closed", "close it"),
    ("block scalar", "a | or > that cannot be read", "put its text on the next lines"),
    ("mapping values", 'a ": " where a key is not allowed', _FIX),
    ("mapping keys", 'a "? " where a key is not allowed', "write `key: value`"),
    ("sequence entries", 'a "- " where a list is not allowed', "begin the list on a new line"),
    ("node content", "a value is missing", "write a value, or put this in quotes"),
    ("unexpected ':'", 'a ":" without a key before it', "put the value in quotes"),
    ("flow", "a bracket that is not closed, or a missing comma", "close it"),
    ("expected ':'", "a line without a colon", "write `key: value`"),
    ("block", "a line that does not fit the lines above it", _INDENT),
    ("document start", "text after the end of the document", "keep only one document"),
)
# The cause of these is where the library's context began.
_AT_CONTEXT: Final = {"an alias", "an anchor", " tag", "quoted scalar", "flow", "expected ':'"}


def _explain(source: _YamlText, error: yaml.MarkedYAMLError) -> YamlError:
    words = f"{error.context or ''} {error.problem or ''}".strip()
    index = error.problem_mark.index if error.problem_mark else 0
    if "cannot start any token" in words:
        char = source.body[index : index + 1]
        if char == "\t":
            return source.error(index, "a tab where only spaces are allowed", "indent with spaces")
        return source.error(index, f"a value cannot begin with {char}", "put it in quotes")
    for part, reason, fix in _PROBLEMS:
        if part in words:
            mark = error.context_mark if part in _AT_CONTEXT else None
            return source.error(mark.index if mark else index, reason, fix)
    return source.error(index, words, _FIX)
