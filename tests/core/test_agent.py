"""Agent definitions in org."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.agent import (
    AgentDefinition,
    AgentError,
    RunnerKind,
    check_agent,
    parse_agent,
)
from horae.core.entry import Wake
from scale import scaled

TEXT = (Path(__file__).parents[1] / "data" / "agent-writer.org").read_text()


def agent(*lines: str, prompt: str = "You write.") -> str:
    drawer = ("* The writer :agent:", ":PROPERTIES:", *lines, ":END:", prompt)
    return "".join(f"{line}\n" for line in drawer)


def test_a_definition_is_a_headline_its_properties_and_a_system_prompt() -> None:
    assert parse_agent(TEXT, "writer.org") == AgentDefinition(
        "wren",
        "The writer",
        "You write one section at a time.\n\n*** How\nRead the plan first.",
        model="small-1",
        tagline="drafts new sections",
        toolkits=("repo", "search"),
        runner=RunnerKind.COMMAND,
        command=("my-agent", "--once", "one section"),
        timeout=timedelta(minutes=20),
        tools=("git", "fetch"),
        variables=("LANG", "API_BASE"),
        wake=Wake.DUE,
    )
    assert check_agent(TEXT, "writer.org") == []


def test_what_is_not_said_is_as_the_settings_have_it() -> None:
    assert parse_agent(agent()) == AgentDefinition("", "The writer", "You write.")
    assert parse_agent("* wren :agent:\nYou write.\n").name == "wren"


def test_the_prompt_ends_at_the_next_heading_of_one_or_two_stars() -> None:
    text = "* wren :agent:\n*** System prompt\nOne.\n**** Two\n*** Three\n{}\nNot this.\n"
    assert parse_agent(text.format("** Notes")).prompt == "One.\n**** Two\n*** Three"
    assert parse_agent(text.format("* Notes")).prompt == "One.\n**** Two\n*** Three"


def test_without_its_heading_the_prompt_is_all_that_follows_the_drawer() -> None:
    text = agent(":ID: wren", prompt="You write.\n** Style\nPlainly.")
    assert parse_agent(text).prompt == "You write.\n** Style\nPlainly."


def test_the_variables_count_without_a_command_of_its_own() -> None:
    found = parse_agent(agent(":ENV: LANG"))
    assert (found.command, found.variables) == ((), ("LANG",))


def test_the_first_of_several_agents_is_meant() -> None:
    assert parse_agent("* Notes\n* a :agent:\nOne.\n* b :agent:\nTwo.\n").name == "a"


def test_a_definition_reads_the_same_with_windows_line_ends() -> None:
    windows = parse_agent(TEXT.replace("\n", "\r\n"))
    assert windows.prompt.replace("\r", "") == parse_agent(TEXT).prompt
    assert (windows.name, windows.command) == ("wren", parse_agent(TEXT).command)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "no agent is defined here; tag the headline of the definition :agent:"),
        ("* wren\nYou write.\n", (1, 1), "no agent is defined here"),
        ("Text.\n* wren :agent:\n", (2, 1), "the agent has no system prompt; write it under"),
        (agent(":ID: wren", prompt=" "), (1, 1), "the agent has no system prompt"),
        ("* wren :agent:\nText.\n** System prompt\n\n", (1, 1), "the agent has no system prompt"),
        (agent(":ID: ../up"), (3, 6), ":ID: '../up' is not a valid name; write one word"),
        (agent(":RUNNER: magic"), (3, 10), ":RUNNER: 'magic' is not valid; write command or model"),
        (agent(":WAKE: never"), (3, 8), ":WAKE: 'never' is not valid; write always or due"),
        (agent(":COMMAND: say 'hi"), (3, 11), ":COMMAND: no closing quotation"),
        (agent(":ENV: a-b"), (3, 7), ":ENV: 'a-b' is not the name of a variable"),
        (agent(":TIMEOUT: soon"), (3, 11), ":TIMEOUT: must be numbers with units"),
    ],
)
def test_what_cannot_run_is_refused_with_its_place(
    text: str, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(AgentError) as caught:
        parse_agent(text, "writer.org")
    line, column = place
    assert str(caught.value).startswith(f"writer.org:{line}:{column}: {message}")
    [finding] = check_agent(text, "writer.org")
    assert (finding.code, finding.line, finding.column) == ("agent", line, column)


def test_a_property_that_is_nearly_a_known_one_is_found() -> None:
    [finding] = check_agent(agent(":TIME-OUT: 5m"))
    assert (finding.code, finding.line, finding.fix) == (
        "property-typo",
        3,
        "did you mean :TIMEOUT:?",
    )


LINES = st.sampled_from(
    ["* wren :agent:", "** System prompt", "* Notes", ":PROPERTIES:", ":END:", ":ID: wren", "text"]
)


@given(st.lists(LINES | st.text(max_size=12), max_size=20))
@settings(max_examples=scaled(1500), deadline=None)
def test_any_text_is_an_agent_with_a_prompt_or_an_error_with_a_place(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        prompt = parse_agent(text).prompt
    except AgentError:
        [finding] = check_agent(text)
        assert 1 <= finding.line <= text.count("\n") + 1
    else:
        assert prompt.strip()
