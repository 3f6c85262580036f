"""A finding in a file of `.agentd` stands where the slip is, also inside another field."""

from horae.sources.triggers.files import parse_workflow

SLIPS = """\
name: daily
agent: reporter
promt: x
source:
  type: cron
  expression: "0 9 * * *"
  expresion: x
prompt_template: Hello.
"""


def test_a_field_that_is_not_read_is_named_where_it_stands() -> None:
    found = parse_workflow(SLIPS, file="daily.yml")
    places = [(each.line, each.column, each.message) for each in found.problems]
    assert places == [
        (3, 1, "unknown field 'promt' is ignored"),
        (7, 3, "unknown field 'expresion' is ignored"),
    ]


def test_a_source_that_is_no_mapping_has_no_fields_to_name() -> None:
    found = parse_workflow("name: a\nagent: b\nsource: cron\nprompt_template: x\n")
    assert [each.message for each in found.problems] == ["source must be a mapping"]
