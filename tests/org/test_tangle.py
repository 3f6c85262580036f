"""What a plan resolves to: worlds, components, edges, findings, upgrades and durable parts."""

from typing import Any

import pytest

import horae


def step(name: str, args: str = "", *, stars: str = "**") -> str:
    """Return a component with one line of code."""
    return f"{stars} {name} :component:\n#+begin_src js {args}\n1\n#+end_src\n"


def world(text: str) -> Any:
    """Return the only world."""
    [only] = horae.tangle(text)["worlds"]
    return only


def component(args: str) -> Any:
    """Return a component whose block carries these header arguments."""
    [only] = world("* Plan :workflow:\n" + step("Step", args))["components"]
    return only


def names(components: list[Any]) -> list[str]:
    return [each["name"] for each in components]


def arrows(read: Any) -> list[tuple[str, str]]:
    return [(edge["from"], edge["to"]) for edge in read["edges"]]


# The plan


def test_a_world_has_exactly_seven_keys() -> None:
    assert world("* Plan :workflow:\n") == {
        "name": "Plan",
        "schedule": None,
        "imports": [],
        "exports": [],
        "components": [],
        "edges": [],
        "workflows": [],
    }


def test_a_component_has_exactly_nine_keys() -> None:
    args = ":deps a,b :uses x :in i :out o :persist :dir d :sig s"
    assert component(args) == {
        "name": "Step",
        "lang": "js",
        "deps": ["a", "b"],
        "uses": ["x"],
        "in": "i",
        "out": "o",
        "persist": True,
        "src": "1\n",
        "dir": "d",
    }


def test_a_component_without_arguments_has_their_empty_values() -> None:
    assert component("") == {
        "name": "Step",
        "lang": "js",
        "deps": [],
        "uses": [],
        "in": None,
        "out": None,
        "persist": False,
        "src": "1\n",
        "dir": None,
    }


def test_a_component_without_a_block_has_its_nine_keys_and_no_language() -> None:
    [only] = world("* Plan :workflow:\n** Step :component:\n")["components"]
    assert only.keys() == component("").keys()
    assert only["lang"] is None


@pytest.mark.parametrize("text", ["", "* Plan\n", "Prose.\n", step("Lonely", ":out x")])
def test_a_plan_without_a_workflow_has_no_worlds(text: str) -> None:
    assert horae.tangle(text) == {"worlds": []}


# What becomes what


@pytest.mark.parametrize("tag", ["Workflow", "WORKFLOW", "workflows", "work", "agent"])
def test_only_the_exact_tag_makes_a_world(tag: str) -> None:
    assert horae.tangle(f"* Plan :{tag}:\n") == {"worlds": []}


@pytest.mark.parametrize("tag", ["Component", "COMPONENT", "components"])
def test_only_the_exact_tag_makes_a_component(tag: str) -> None:
    assert world(f"* Plan :workflow:\n** Step :{tag}:\n")["components"] == []


def test_the_tag_may_stand_among_others() -> None:
    text = "* Plan :a:workflow:b:\n** Step :c:component:\n"
    assert names(world(text)["components"]) == ["Step"]


def test_worlds_come_in_the_order_of_the_document() -> None:
    text = "* C :workflow:\n* Prose\n* A :workflow:\n* B :workflow:\n"
    assert names(horae.tangle(text)["worlds"]) == ["C", "A", "B"]


def test_a_workflow_at_any_depth_opens_a_world() -> None:
    text = "* Prose\n** More\n**** Deep :workflow:\n** Less deep :workflow:\n* Flat :workflow:\n"
    assert names(horae.tangle(text)["worlds"]) == ["Deep", "Less deep", "Flat"]


def test_a_workflow_below_a_lonely_component_opens_a_world() -> None:
    assert world("* Lonely :component:\n** Plan :workflow:\n")["name"] == "Plan"


def test_a_world_takes_its_whole_subtree_and_nothing_behind_it() -> None:
    text = "* Plan :workflow:\n" + step("In") + "* Prose\n" + step("Out")
    assert names(world(text)["components"]) == ["In"]


def test_a_workflow_inside_a_workflow_is_a_world_of_its_own_within() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("Before")
        + "** Inner :workflow:\n"
        + step("Within", stars="***")
        + step("After")
    )
    outer = world(text)
    [inner] = outer["workflows"]
    assert names(outer["components"]) == ["Before", "After"]
    assert names(inner["components"]) == ["Within"]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param("", id="directly"),
        pytest.param("** Chapter\n", id="under an untagged heading"),
        pytest.param("** Chapter\n*** Section :draft:\n", id="under two headings"),
        pytest.param("** Other :component:\n", id="under another component"),
    ],
)
def test_components_and_workflows_are_found_at_any_depth(between: str) -> None:
    text = (
        f"* Plan :workflow:\n{between}" + step("Step", stars="******") + "****** Sub :workflow:\n"
    )
    assert names(world(text)["components"])[-1] == "Step"
    assert names(world(text)["workflows"]) == ["Sub"]


def test_a_component_under_a_component_is_one_more_of_the_same_world() -> None:
    text = "* Plan :workflow:\n" + step("Outer") + step("Inner", stars="***")
    assert names(world(text)["components"]) == ["Outer", "Inner"]


def test_with_both_tags_on_one_headline_the_workflow_wins() -> None:
    both = world("* Plan :workflow:\n** Both :component:workflow:\n")
    assert both["components"] == []
    assert names(both["workflows"]) == ["Both"]


def test_moving_a_subtree_deeper_changes_nothing() -> None:
    text = (
        "* Plan :workflow:\nSCHEDULED: <2026-06-13>\n"
        + step("A", ":out x")
        + "** Sub :workflow:\n"
        + step("B", ":in y", stars="****")
        + step("C", ":in x")
    )
    deeper = "* Prose\n" + "".join(
        f"**{line}" if line.startswith("*") else line for line in text.splitlines(keepends=True)
    )
    assert horae.tangle(deeper) == horae.tangle(text)


def test_the_name_is_the_title_without_state_priority_and_tags() -> None:
    text = "* TODO [#A] The plan :workflow:\n:PROPERTIES:\n:ID: x1\n:END:\n** DONE The step :component:\n"
    assert world(text)["name"] == "The plan"
    assert names(world(text)["components"]) == ["The step"]


@pytest.mark.parametrize(
    ("block", "lang"),
    [
        pytest.param("", None, id="no block is null"),
        pytest.param("#+begin_src\n1\n#+end_src\n", "", id="a block without a language is empty"),
        pytest.param("#+begin_src zig\n1\n#+end_src\n", "zig", id="any other word is carried"),
    ],
)
def test_the_language_of_a_component(block: str, lang: str | None) -> None:
    [only] = world(f"* Plan :workflow:\n** Step :component:\n{block}")["components"]
    assert only["lang"] == lang


# Header arguments


@pytest.mark.parametrize(
    ("args", "key", "value"),
    [
        pytest.param(":deps a,b", "deps", ["a", "b"], id="deps are divided by commas"),
        pytest.param(":deps a", "deps", ["a"], id="one dep"),
        pytest.param(":deps ,a,,b,", "deps", ["", "a", "", "b", ""], id="empty deps are kept"),
        pytest.param(":deps a, b", "deps", ["a", ""], id="deps are one token"),
        pytest.param(":deps a,b :deps c", "deps", ["c"], id="of two deps the last"),
        pytest.param(":uses x", "uses", ["x"], id="one use"),
        pytest.param(":uses x :uses y", "uses", ["x", "y"], id="uses add up"),
        pytest.param(":uses y :uses x :uses y", "uses", ["y", "x", "y"], id="the same use twice"),
        pytest.param(":uses x,y", "uses", ["x,y"], id="uses are not divided"),
        pytest.param(":in a", "in", "a", id="one input"),
        pytest.param(":in a :in b", "in", "b", id="of two inputs the last"),
        pytest.param(":out a:list", "out", "a:list", id="one output, colon and all"),
        pytest.param(":out a :out b", "out", "b", id="of two outputs the last"),
        pytest.param(":dir src/a", "dir", "src/a", id="a directory"),
        pytest.param(":dir a :dir b", "dir", "b", id="of two directories the last"),
        pytest.param(":persist", "persist", True, id="persist is a flag"),
        pytest.param("", "persist", False, id="no flag"),
        pytest.param("persist", "persist", False, id="a word without its colon"),
        pytest.param(":results output :in a", "in", "a", id="other arguments are ignored"),
        pytest.param("a b\t:in   c  ", "in", "c", id="loose words and blanks are ignored"),
        pytest.param(":IN a", "in", None, id="a tall argument is another one"),
        pytest.param(":in", "in", None, id="an input at the end of the line"),
        pytest.param(":in a :in", "in", "a", id="an input at the end leaves the one before"),
        pytest.param(":out", "out", None, id="an output at the end of the line"),
        pytest.param(":dir", "dir", None, id="a directory at the end of the line"),
        pytest.param(":uses x :uses", "uses", ["x"], id="a use at the end of the line"),
        pytest.param(":deps a :deps", "deps", ["a"], id="deps at the end of the line"),
    ],
)
def test_header_arguments_are_read_token_by_token(args: str, key: str, value: object) -> None:
    assert component(args)[key] == value


def test_a_value_is_whatever_token_follows_even_another_argument() -> None:
    read = component(":in :out x")
    assert (read["in"], read["out"]) == (":out", None)


def test_a_flag_takes_no_value() -> None:
    read = component(":persist :out x")
    assert (read["persist"], read["out"]) == (True, "x")


# What is derived


def test_imports_are_the_sorted_distinct_uses() -> None:
    text = (
        "* Plan :workflow:\n" + step("A", ":uses z :uses a :uses z") + step("B", ":uses a :uses m")
    )
    assert world(text)["imports"] == ["a", "m", "z"]


def test_imports_are_those_of_the_worlds_own_components() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("A", ":uses a")
        + "** Inner :workflow:\n"
        + step("B", ":uses b", stars="***")
    )
    assert world(text)["imports"] == ["a"]
    assert world(text)["workflows"][0]["imports"] == ["b"]


def test_an_edge_runs_from_the_producer_to_the_consumer() -> None:
    text = "* Plan :workflow:\n" + step("A", ":out x") + step("B", ":in x")
    assert world(text)["edges"] == [{"from": "A", "to": "B"}]


def test_a_producer_may_stand_below_its_consumer() -> None:
    text = "* Plan :workflow:\n" + step("B", ":in x") + step("A", ":out x")
    assert arrows(world(text)) == [("A", "B")]


def test_edges_come_in_the_order_of_their_consumers() -> None:
    text = (
        "* Plan :workflow:\n"
        + step("C", ":in y")
        + step("A", ":out x")
        + step("D", ":in x")
        + step("B", ":in x :out y")
    )
    assert arrows(world(text)) == [("B", "C"), ("A", "D"), ("A", "B")]


def test_of_two_producers_the_last_one_wins_silently() -> None:
    text = "* Plan :workflow:\n" + step("A", ":out x") + step("B", ":out x") + step("C", ":in x")
    assert arrows(world(text)) == [("B", "C")]
    assert world(text)["exports"] == []
    assert horae.validate(text) == []


@pytest.mark.parametrize("wanted", ["events", "events:set", "Events:list", "list"])
def test_names_match_whole_or_not_at_all(wanted: str) -> None:
    text = "* Plan :workflow:\n" + step("A", ":out events:list") + step("B", f":in {wanted}")
    assert world(text)["edges"] == []
    assert world(text)["exports"] == ["events:list"]


def test_a_component_may_feed_itself() -> None:
    text = "* Plan :workflow:\n" + step("A", ":in x :out x")
    assert arrows(world(text)) == [("A", "A")]


def test_a_cycle_is_shown_as_it_is_written() -> None:
    text = "* Plan :workflow:\n" + step("A", ":in y :out x") + step("B", ":in x :out y")
    assert arrows(world(text)) == [("B", "A"), ("A", "B")]
    assert horae.validate(text) == []


def test_exports_are_the_sorted_distinct_outputs_that_nobody_takes() -> None:
    text = (
        "* Plan :workflow:\n"
        + step("A", ":out z")
        + step("B", ":out taken")
        + step("C", ":in taken :out a")
        + step("D", ":out z")
    )
    assert world(text)["exports"] == ["a", "z"]


def test_a_child_gets_no_edge_from_its_parent() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("A", ":out x")
        + "** Inner :workflow:\n"
        + step("B", ":in x", stars="***")
    )
    outer = world(text)
    [inner] = outer["workflows"]
    assert outer["edges"] == inner["edges"] == []
    assert outer["exports"] == ["x"]


def test_what_a_child_makes_is_the_childs_export() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("A", ":in x")
        + "** Inner :workflow:\n"
        + step("B", ":out x", stars="***")
    )
    outer = world(text)
    [inner] = outer["workflows"]
    assert outer["edges"] == []
    assert (outer["exports"], inner["exports"]) == ([], ["x"])


@pytest.mark.parametrize(
    ("below", "schedule"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("DEADLINE: <2026-06-13>\n", None, id="a deadline never"),
        pytest.param(
            "SCHEDULED: <2026-06-13>\n",
            {"at": "2026-06-13", "repeat": None, "active": True},
            id="a stamp",
        ),
        pytest.param(
            "SCHEDULED: [2026-06-13]\n",
            {"at": "2026-06-13", "repeat": None, "active": False},
            id="an inactive stamp",
        ),
        pytest.param(
            ":PROPERTIES:\n:SCHEDULE: every now and then\n:END:\n",
            {"cron": "every now and then"},
            id="a raw property",
        ),
        pytest.param(
            "SCHEDULED: <2026-06-13>\n:PROPERTIES:\n:SCHEDULE: @daily\n:END:\n",
            {"cron": "@daily"},
            id="the property before the stamp",
        ),
    ],
)
def test_the_schedule_is_resolved_at_every_level_for_itself(below: str, schedule: object) -> None:
    inner_only = world(f"* Outer :workflow:\n** Inner :workflow:\n{below}")
    outer_only = world(f"* Outer :workflow:\n{below}** Inner :workflow:\n")
    assert (inner_only["schedule"], inner_only["workflows"][0]["schedule"]) == (None, schedule)
    assert (outer_only["schedule"], outer_only["workflows"][0]["schedule"]) == (schedule, None)


# Findings


def test_a_clean_plan_has_no_findings() -> None:
    assert horae.validate("* Plan :workflow:\n" + step("A", ":out x") + step("B", ":in x")) == []


def test_a_finding_has_exactly_a_level_a_scope_and_a_message() -> None:
    [finding] = horae.validate("* Plan :workflow:\n** Step :component:\n")
    assert finding.keys() == {"level", "scope", "message"}
    assert all(isinstance(each, str) and each for each in finding.values())


def test_a_component_without_a_block_is_an_error_of_that_component() -> None:
    text = "* Plan :workflow:\n** Idea :component:\nSome day.\n" + step("A")
    assert [(each["level"], each["scope"]) for each in horae.validate(text)] == [("error", "Idea")]


def test_an_input_without_a_producer_is_an_error_that_names_it() -> None:
    text = "* Plan :workflow:\n" + step("A", ":out x") + step("B", ":in why")
    [finding] = horae.validate(text)
    assert (finding["level"], finding["scope"]) == ("error", "B")
    assert "why" in finding["message"]


def test_outside_a_workflow_nothing_is_checked() -> None:
    assert horae.validate("* Lonely :component:\n" + step("B", ":in nowhere")) == []


def test_every_workflow_is_checked_the_nested_ones_too() -> None:
    text = "* A :workflow:\n** One :component:\n* Prose\n** B :workflow:\n*** Two :component:\n"
    assert [each["scope"] for each in horae.validate(text)] == ["One", "Two"]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_flaw_under_several_workflows_is_reported_once(depth: int) -> None:
    above = "".join(f"{'*' * level} Plan {level} :workflow:\n" for level in range(1, depth + 1))
    findings = horae.validate(f"{above}{'*' * (depth + 1)} Idea :component:\n")
    assert [each["scope"] for each in findings] == ["Idea"]


def test_a_child_that_takes_from_its_parent_is_flagged_once_by_its_own_pass() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("A", ":out x")
        + "** Inner :workflow:\n"
        + step("B", ":in x", stars="***")
    )
    [finding] = horae.validate(text)
    assert (finding["level"], finding["scope"]) == ("error", "B")


def test_a_parent_that_takes_from_its_child_is_not_flagged() -> None:
    text = (
        "* Outer :workflow:\n"
        + step("A", ":in x")
        + "** Inner :workflow:\n"
        + step("B", ":out x", stars="***")
    )
    assert horae.validate(text) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("* Plan :workflow:\n" + step("A", ":in x :out x"), id="a cycle"),
        pytest.param("* Plan :workflow:\n" + step("A", ":out x") * 2, id="two producers"),
        pytest.param("* Plan :workflow:\nSCHEDULED: <1999-02-31>\n", id="time"),
        pytest.param("* Plan :workflow:mystery:\n", id="an unknown tag"),
        pytest.param("* Plan :workflow:\n** Step :componemt:\n", id="a misspelt tag"),
        pytest.param("* Plan :workfow:\n** Step :component:\n", id="a misspelt workflow"),
        pytest.param("* Plan :workflow:\n" + step("A", ":deps a,, :dir nowhere"), id="deps"),
    ],
)
def test_what_the_validator_does_not_look_at(text: str) -> None:
    assert horae.validate(text) == []


# The upgrade check

BEFORE = "* Plan :workflow:\n" + step("A", ":uses u :out x") + step("B", ":in x :out y")


def upgraded(old: str, new: str) -> list[tuple[str, str]]:
    """Return level and message of what stands against the upgrade."""
    return [(each["level"], each["message"]) for each in horae.upgrade(old, new)]


def test_a_plan_may_always_stay_as_it_is() -> None:
    assert horae.upgrade(BEFORE, BEFORE) == []


def test_two_components_of_one_name_may_stay_as_they_are() -> None:
    twins = "* Plan :workflow:\n" + step("A", ":out x") + step("A", ":out y")
    assert horae.upgrade(twins, twins) == []


def test_a_workflow_that_is_gone_is_an_error() -> None:
    [finding] = horae.upgrade(BEFORE, "* Prose\n")
    assert finding.keys() == {"level", "scope", "message"}
    assert (finding["level"], finding["scope"]) == ("error", "Plan")


def test_a_renamed_workflow_is_one_that_is_gone() -> None:
    [finding] = horae.upgrade(BEFORE, BEFORE.replace("* Plan", "* Plot"))
    assert (finding["level"], finding["scope"]) == ("error", "Plan")


def test_an_export_that_is_gone_is_an_error() -> None:
    smaller = "* Plan :workflow:\n" + step("A", ":uses u :out x")
    [(level, message)] = upgraded(BEFORE, smaller)
    assert level == "error"
    assert "y" in message


def test_an_export_that_is_now_taken_inside_is_gone_too() -> None:
    [(level, message)] = upgraded(BEFORE, BEFORE + step("C", ":in y"))
    assert level == "error"
    assert "y" in message


def test_a_new_import_is_a_warning() -> None:
    [(level, message)] = upgraded(BEFORE, BEFORE + step("C", ":uses network"))
    assert level == "warn"
    assert "network" in message


def test_a_component_with_another_output_is_an_error() -> None:
    renamed = BEFORE.replace(":out x", ":out z").replace(":in x", ":in z")
    [finding] = horae.upgrade(BEFORE, renamed)
    assert finding["level"] == "error"
    assert "A" in finding["scope"] + finding["message"]


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(BEFORE + step("C"), id="a new component"),
        pytest.param(BEFORE + step("C", ":out more"), id="a new export"),
        pytest.param(BEFORE + step("C", ":uses u"), id="an import it had already"),
        pytest.param(BEFORE + "* Other :workflow:\n" + step("C", ":uses n"), id="a new workflow"),
        pytest.param(BEFORE + "** Sub :workflow:\n", id="a new sub-workflow"),
        pytest.param(BEFORE.replace(":uses u ", ""), id="an import less"),
        pytest.param(BEFORE.replace("1\n", "2\n"), id="other code"),
        pytest.param(
            BEFORE.replace(":workflow:\n", ":workflow:\nSCHEDULED: <2026-06-13>\n"), id="a schedule"
        ),
        pytest.param("* Prose\n" + BEFORE.replace("* ", "** "), id="another depth"),
    ],
)
def test_growing_is_silent(new: str) -> None:
    assert horae.upgrade(BEFORE, new) == []


def test_nested_workflows_are_compared_by_their_titles_wherever_they_stand() -> None:
    nested = "* Outer :workflow:\n** Inner :workflow:\n" + step("A", ":out x", stars="***")
    side_by_side = (
        "* Outer :workflow:\n" + step("A", ":out x") + "* Inner :workflow:\n" + step("A", ":out x")
    )
    assert horae.upgrade(nested, side_by_side) == []
    assert {each["scope"] for each in horae.upgrade(nested, "")} == {"Inner", "Outer"}


def test_the_components_of_a_workflow_are_all_those_below_it() -> None:
    outer_makes = "* Outer :workflow:\n" + step("A", ":out x") + "** Inner :workflow:\n"
    inner_makes = "* Outer :workflow:\n** Inner :workflow:\n" + step("A", ":out x", stars="***")
    assert horae.upgrade(outer_makes, inner_makes) == []


def test_findings_come_in_the_order_of_the_alphabet() -> None:
    old = "* Moss :workflow:\n* Wren :workflow:\n* Alder :workflow:\n"
    assert [each["scope"] for each in horae.upgrade(old, "")] == ["Alder", "Moss", "Wren"]


# Durable components


def test_durable_components_are_those_that_persist() -> None:
    text = "* Plan :workflow:\n" + step("A", ":persist") + step("B") + step("C", ":out x :persist")
    assert horae.durable(text) == ["A", "C"]


def test_a_world_comes_before_its_children() -> None:
    text = (
        "* One :workflow:\n"
        "** Inner :workflow:\n"
        + step("A", ":persist", stars="***")
        + "** Next to it :workflow:\n"
        + step("D", ":persist", stars="***")
        + step("B", ":persist")
        + "* Two :workflow:\n"
        + step("C", ":persist")
    )
    assert horae.durable(text) == ["B", "A", "D", "C"]


def test_a_plan_without_durable_components_has_an_empty_list() -> None:
    assert horae.durable("* Plan :workflow:\n" + step("A")) == []
    assert horae.durable("") == []
