"""What occurs in the records: commands, options, routes and error codes, and what does not."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from golden.product import PROGRAMS, commands, routes

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = Path(__file__).parent / "records"
CODES = Path(__file__).resolve().parents[2] / "docs/reference/cli.md"


class Covered(NamedTuple):
    """What there is of one kind, and which of it occurs."""

    there: frozenset[str]
    found: frozenset[str]

    @property
    def missing(self) -> list[str]:
        return sorted(self.there - self.found)


def records(surface: str) -> list[dict[str, Any]]:
    """Return the records of a surface, of all stories."""
    found: list[dict[str, Any]] = []
    for path in sorted(RECORDS.glob(f"*/{surface}.json")):
        found += json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def covered() -> dict[str, Covered]:
    """Return what there is and what occurs, by kind."""
    there = dict(commands())
    said = [_words(each["call"]) for each in records("cli")]
    met: dict[str, list[list[str]]] = {name: [] for name in there}
    for words in said:
        plain = [word for word in words if not word.startswith("-")]
        for length in (4, 3, 2):
            name = " ".join(plain[:length])
            if name in met:
                met[name].append(words)
                break
    options = {
        f"{name} {param.opts[0]}": {*param.opts, *param.secondary_opts}
        for name, command in there.items()
        for param in command.params
        if param.param_type_name == "option"
        and not {*param.opts} & {"--json", "--jsonl", "--text", "--root", "--data"}
    }
    used = {
        name
        for name, spellings in options.items()
        if any(spellings & {*words} for words in met[name.rpartition(" ")[0]])
    }
    asked = {each["route"] for each in records("http")}
    refused = {each["route"] for each in records("http") if each["status"] >= 400}
    codes = {*re.findall(r"^\| `(\w+)` \|", _section("## Error codes"), re.MULTILINE)}
    given = {*_codes(records("cli")), *_codes(records("http"))}
    return {
        "commands": Covered(frozenset(there), frozenset(each for each in met if met[each])),
        "options": Covered(frozenset(options), frozenset(used)),
        "routes": Covered(frozenset(routes()), frozenset(asked - {None})),
        "routes with an error": Covered(frozenset(routes()), frozenset(refused - {None})),
        "error codes": Covered(frozenset(codes), frozenset(given & codes)),
    }


def _words(call: str) -> list[str]:
    """Return the words of a call, from the name of the program on."""
    words = shlex.split(call)
    return words[next(place for place, word in enumerate(words) if word in PROGRAMS) :]


def _section(title: str) -> str:
    return CODES.read_text(encoding="utf-8").partition(title)[2].partition("\n## ")[0]


def _codes(value: Any) -> Iterator[str]:
    """Yield every error code in data."""
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, dict):
        if isinstance(value.get("code"), str):
            yield value["code"]
        for each in value.values():
            yield from _codes(each)


def report() -> str:
    """Return what occurs in numbers, and by name what does not."""
    lines = []
    for kind, each in covered().items():
        lines.append(f"{kind}: {len(each.found & each.there)} of {len(each.there)}")
        if each.missing:
            lines.append(f"  without a record: {', '.join(each.missing)}")
    return "\n".join(lines)
