"""What Horae says is plain technical English: help lines, and every text that a user can meet.

`python scripts/messages.py` lists those texts. A phrase that was wrong once goes into `BANNED`; a
verb that begins a new help line goes into `VERBS`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from horae.cli.group import horae
from horae.cli.wb import wb
from horae.sources.board.batty import batty
from horae.sources.triggers.agent_cli import agent

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "src" / "horae" / "demo"
PROGRAMS: dict[str, click.Group] = {"horae": horae, "wb": wb, "batty": batty, "agent": agent}
# What a help line begins with.
VERBS = {
    "Add", "Approve", "Archive", "Assign", "Cancel", "Change", "Check", "Claim", "Clear", "Count",
    "Create", "Delete", "Disable", "Edit", "Enable", "End", "Explain", "Export", "Follow", "Import",
    "Install", "List", "Manage", "Mark", "Merge", "Move", "Open", "Pause", "Print", "Query", "Recycle",
    "Reject", "Release", "Remove", "Replace", "Restart", "Restore", "Resume", "Revoke", "Rotate",
    "Run", "Schedule", "Set", "Show", "Simulate", "Start", "Stop", "Tick", "Trust", "Write",
}  # fmt: skip
# What a text must not say, and what it says instead.
BANNED = {
    r"whoever": "the user, the caller",
    r"(?:some|no|any)body": "name the user, the agent or the program",
    r"nothing odd": "no problems",
    r"keeps? the hours": "run what is scheduled",
    r"book of hours": "plan",
    r"(?<!there )is no (?!longer\b)": "is not a",
    r"(?:what is|is|are) odd": "the problem",
    r"ende?d?s? badly": "failed",
    r"(?:good|valid) once": "can be used once",
    r"(?:was|is|be|are|were) let go": "started",
    r"puts? out": "output",
    r"takes? in": "input",
    r"(?:an?|any|each|every|first|next|one|that|the|this) moments?": "time, occurrence, now",
    r"passe[sd] by while": "missed",
    r"(?:it )?rests since": "paused since",
    r"wall clock": "time limit",
    r"small print": "details",
    r"a when": "a schedule",
    r"(?:is|was|are|were) told": "gets, receives",
    r"asked for": "requested",
    r"(?:may go|goes|went) on": "continues",
    r"(?:came|comes?) back": "recurs, is recycled",
    r"a look": "check, show",
    r"(?:its|agent's) day": "its lifecycle",
    r"make room": "free disk space",
    r"(?:it is|is) there already": "exists",
    r"in a rhythm": "at an interval",
}
_BANNED = re.compile(
    "|".join(rf"(?P<p{n}>\b{each}\b)" for n, each in enumerate(BANNED)), re.IGNORECASE
)


# Examples are from the user's world: backups, digests, dependencies, issues, releases.
TOYS = re.compile(r"\b(?:beans|garden|lamps?|moss|wren)\b", re.IGNORECASE)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(each for each in (ROOT / "examples").rglob("*") if each.suffix in {".md", ".org"}),
    *sorted(each for each in DEMO.rglob("*") if each.suffix in {".md", ".org", ".yml"}),
    *sorted((ROOT / "schemas").glob("*.json")),
]


def every(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, and all those in it."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None, f"{name} {word}"
            yield from every(inner, f"{name} {word}")


COMMANDS = {
    name: command for program, group in PROGRAMS.items() for name, command in every(group, program)
}


def line_of(command: click.Command) -> str:
    """Return the first sentence of a command's help, as a list of commands shows it."""
    return " ".join((command.help or "").partition("\n\n")[0].split()).removesuffix(".")


def collector() -> Any:
    """Return the script that lists the messages."""
    spec = importlib.util.spec_from_file_location("messages", ROOT / "scripts" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def banned(text: str) -> Iterator[str]:
    """Yield what is wrong with a text."""
    for found in _BANNED.finditer(text):
        instead = list(BANNED.values())[int((found.lastgroup or "p0")[1:])]
        yield f"{found[0].strip()!r} (say: {instead})"


def test_the_five_documents_programs_are_all_held() -> None:
    assert len(COMMANDS) > 120
    assert {name.split()[0] for name in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_line_is_at_most_60_characters_and_begins_with_a_verb(name: str) -> None:
    line = line_of(COMMANDS[name])
    assert line, f"{name} has no help"
    assert len(line) <= 60, f"{name}: {line}"
    first = line.split()[0].rstrip(",")
    assert first in VERBS, f"{name}: {first!r} is not a verb of the list in {__file__}"


def test_every_option_says_what_it_is_for() -> None:
    for name, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert param.help, f"{name} {param.opts[0]}"
                is_seed = name.startswith("batty ")  # has the lines of its document, without a dot
                assert is_seed or param.help.endswith("."), f"{name} {param.opts[0]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole_at_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    program, *words = name.split()
    shown = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], prog_name=program).stdout
    lines = shown.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    command = COMMANDS[name]
    if not isinstance(command, click.Group):
        return
    context = click.Context(command, info_name=name)
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None
        listed = [line.split(None, 1)[1] for line in lines if line.startswith(f"  {word} ")]
        if not inner.hidden and listed:
            assert listed[0].removesuffix(".") == line_of(inner), f"{name} {word}"


def test_no_message_uses_a_banned_phrase() -> None:
    found = [
        f"{message.place}: {wrong}: {message.text}"
        for message in collector().messages()
        for wrong in banned(message.text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_document_uses_a_banned_phrase(page: Path) -> None:
    lines = [line.split() for line in page.read_text().splitlines()]
    found = [
        f"{page.relative_to(ROOT)}:{number}: {wrong}"
        # A phrase may begin on one line and end on the next.
        for number, pair in enumerate(pairwise([*lines, []]), 1)
        for wrong in (*banned(" ".join(chain(*pair))), *map(repr, TOYS.findall(" ".join(pair[0]))))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("write it to whoever reads it", ["'whoever' (say: the user, the caller)"]),
        ("'x' is no directory", ["'is no' (say: is not a)"]),
        ("the lease is no longer valid; there is no such run", []),
        ("Run what is scheduled in your plan files", []),
    ],
)
def test_a_banned_phrase_is_found_with_what_to_say_instead(text: str, wrong: list[str]) -> None:
    assert list(banned(text)) == wrong


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
