"""Reasons: what a code is, that each is used and documented, and that none is read from words."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from functools import cache
from pathlib import Path

import pytest

import horae
from horae.core.receipt import Reason, ReasonCode, coded

SOURCE = Path(horae.__file__).parent
PAGE = Path(__file__).parents[2] / "docs/reference/reasons.md"
# What was written before is read here, with whatever code it has.
READERS = {"cli/status.py", "cluster/queue.py", "sources/workflows/record.py", "store/codec.py"}
HOME = "core/receipt.py"


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(SOURCE).as_posix(), ast.parse(text))
        for path in sorted(SOURCE.rglob("*.py"))
        if "reason" in (text := path.read_text()).lower()
    ]


def test_a_reason_is_its_words_and_a_text_made_of_it_has_no_code() -> None:
    reason = Reason(ReasonCode.PAUSED, "paused by ada")
    assert reason == "paused by ada"
    assert not isinstance(f"{reason}: again", Reason)
    assert type(str(reason)) is str


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_of_a_reason_keeps_its_code(copied: object) -> None:
    assert callable(copied)
    again = copied(Reason(ReasonCode.PAUSED, "paused by ada"))
    assert (again, again.code) == ("paused by ada", ReasonCode.PAUSED)


def test_a_reason_with_a_code_keeps_it() -> None:
    assert coded("no command", ReasonCode.NOT_READY).code == ReasonCode.NOT_READY
    secret = Reason(ReasonCode.SECRET_UNREADABLE, "secret A cannot be read")
    assert coded(secret, ReasonCode.NOT_READY) is secret


def test_a_code_is_a_short_word_in_snake_case_and_is_called_as_it_is_spelled() -> None:
    for code in ReasonCode:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert len(code) <= 24
        assert code.name.lower() == code


def test_every_code_says_in_a_comment_what_it_means() -> None:
    lines = inspect.getsource(ReasonCode).splitlines()
    said = {line.split()[0] for line in lines if re.match(r"    [A-Z_]+ = \"\w+\"  # ", line)}
    assert said == {code.name for code in ReasonCode}


def test_every_code_is_given_somewhere() -> None:
    used = {
        node.attr
        for _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ReasonCode"
    }
    assert {code.name for code in ReasonCode} <= used


def test_a_reason_is_made_with_a_code_of_the_list() -> None:
    """The types see to it that each reason has a code; here, that it is one that we know."""
    strange = []
    for name, tree in modules():
        for node in ast.walk(tree):
            is_made = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason"
            if not is_made or name in READERS:
                continue
            code = ast.unparse(node.args[0])  # type: ignore[attr-defined]
            is_known = code.removeprefix("ReasonCode.") in ReasonCode.__members__
            is_kept = code == "self.code" or code.endswith("reason.code")
            is_other = code == "ReasonCode.OTHER" and name != "testing.py"
            # Or with one of a table, whose values the types know to be codes.
            is_kept |= code.startswith("_CODES[")
            is_base = name == HOME and code in {"''", "code"}  # no reason, and what makes one
            if is_other or not (is_known or is_kept or is_base):
                strange.append(f"{name}:{node.lineno}: {code}")  # type: ignore[attr-defined]
    assert strange == []


def test_nothing_is_decided_by_how_the_words_of_a_reason_begin_or_end() -> None:
    asked = {"startswith", "endswith", "removeprefix", "removesuffix", "partition"}
    found = []
    for name, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in asked:
                continue
            whose = ast.unparse(node.value)
            # Why an entry is not armed is a finding of `check`, which has codes of its own.
            if re.search(r"reason('\])?$", whose) and name != "core/entry.py":
                found.append(f"{name}:{node.lineno}: {whose}.{node.attr}")
    assert found == []


def test_the_page_of_reason_codes_lists_each_code_once_in_our_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert rows == [code.value for code in ReasonCode]
