"""What a token is called, and what it allows."""

from __future__ import annotations

import pytest

from horae.core.actor import Scope, ScopeError, allows, check_token_name, parse_scopes, scope_words
from horae.errors import HoraeError


def test_only_admin_contains_other_scopes() -> None:
    for held in Scope:
        allowed = {needed for needed in Scope if allows({held}, needed)}
        assert allowed == ({*Scope} if held is Scope.ADMIN else {held})


def test_scopes_are_named_one_by_one_or_divided_by_commas() -> None:
    assert scope_words(parse_scopes(["run", "read, edit", "run"])) == ["read", "run", "edit"]
    for wrong in ([], [""], ["read,"], ["write"], ["READ"], ["read run"]):
        with pytest.raises(ScopeError, match="the scopes are read, run, edit, admin"):
            parse_scopes(wrong)


@pytest.mark.parametrize("name", ["ops", "a", "7", "ci.deploy_2-x", "x" * 64])
def test_a_name_has_letters_digits_and_three_signs(name: str) -> None:
    assert check_token_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "operator", "-x", ".x", "a b", "a:b", "a/b", "a\n", "é", "٣", "x" * 65, "\x1b[2J"]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(HoraeError, match="cannot be called"):
        check_token_name(name)
