"""A headline may call a program or an address, without a workflow around it."""

import pytest

from horae import check
from horae.core.command import CommandCall, CommandError, call_of
from horae.core.entry import Unarmed, Work
from horae.org.document import read
from horae.sources.plans.arming import entries, entries_of, tasks_of

BACKUP = """* Back up
SCHEDULED: <2026-04-01 Wed 03:00 ++1d>
:PROPERTIES:
:COMMAND: restic backup '/home/me/my files'
:END:
"""


def test_a_scheduled_headline_with_a_command_is_an_entry_without_any_tag() -> None:
    [entry] = entries(BACKUP)
    assert (entry.title, entry.work) == ("Back up", Work.COMMAND)


def test_a_post_is_an_entry_too() -> None:
    [entry] = entries(
        "* Tell\n:PROPERTIES:\n:SCHEDULE: @daily\n:POST: https://a.example/x\n:END:\n"
    )
    assert entry.work is Work.POST


def test_what_an_agent_runs_as_is_no_entry() -> None:
    text = "* wren :agent:\n:PROPERTIES:\n:COMMAND: claude -p\n:END:\n"
    assert entries(text) == []


def test_a_headline_that_fires_by_itself_is_not_somebodys_task() -> None:
    assert list(tasks_of(read(BACKUP), file="plan.org", zone_name="UTC")) == []


def test_words_are_words_and_nothing_is_expanded() -> None:
    call = call_of({"COMMAND": r"""say "a b" 'c $HOME' d\ e $(rm) *.org ; true"""})
    assert call == CommandCall(("say", "a b", "c $HOME", "d e", "$(rm)", "*.org", ";", "true"))


@pytest.mark.parametrize(
    ("props", "reason"),
    [
        ({"COMMAND": "say 'hello"}, "no closing quotation; close the quote"),
        ({"COMMAND": "  "}, "does not name a program"),
        ({"COMMAND": "''"}, "does not name a program"),
        ({"COMMAND": "a\0b"}, "contains a NUL"),
        ({"COMMAND": "x" * 70_000}, "is longer than 65536"),
        ({"COMMAND": "say", "ENV": "A-B"}, "'A-B' is not the name of a variable"),
        ({"POST": "ftp://example.org"}, "write an address such as https://"),
        ({"POST": "https://"}, "write an address such as https://"),
        ({"POST": "https://a.example/ b"}, "write an address such as https://"),
        ({"POST": "https://[::1"}, "write an address such as https://"),
        ({"POST": "https://a.example:99999/"}, "write an address such as https://"),
    ],
)
def test_what_cannot_be_called_says_why(props: dict[str, str], reason: str) -> None:
    with pytest.raises(CommandError, match=f"(?s).*{reason}"):
        call_of(props)


def test_a_command_that_cannot_be_read_is_not_armed_and_check_points_at_it() -> None:
    text = BACKUP.replace("files'", "files")
    [item] = entries_of(read(text), file="plan.org", zone_name="UTC")
    assert isinstance(item, Unarmed)
    assert "close the quote" in item.reason
    [found] = [each for each in check(text, name="plan.org") if each.code == "command"]
    assert (found.line, found.column) == (4, 11)
