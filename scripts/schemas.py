"""Write `schemas/` and the tables of settings in docs, from the fields by which files are read.

Which fields there are, of which type, and the words that some of them take, is known where the
files are read. Only descriptions, patterns and what one field means for another are written here.
"""
# ruff: noqa: INP001

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.json import schema_components

from horae.core.entry import PROPERTIES
from horae.core.settings import GUARDED, SECRETS, SETTINGS
from horae.core.tool_policy import Mode
from horae.sources.board.task import FIELDS, TaskFieldKind
from horae.sources.triggers.files import AGENT_KEYS, WORKFLOW_KEYS
from horae.sources.triggers.kinds import KINDS
from horae.sources.triggers.rules import OPTIONS, POLL, AgentConfig

PLACE: Final = Path(__file__).parent.parent / "schemas"
PAGE: Final = PLACE.parent / "docs" / "reference" / "settings.md"
_WEEK: Final = {"minimum": 1, "maximum": 7 * 24 * 3600}  # seconds


def about(kind: Any, description: str = "", **more: Any) -> Any:
    said = {"description": description} if description else {}
    return Annotated[kind, Meta(extra_json_schema={**said, **more})]


def one_of(words: type[StrEnum]) -> Any:
    return Literal[tuple(each.value for each in words)]


def closed(name: str, fields: dict[str, Any], required: tuple[str, ...], **more: Any) -> type:
    """Return a struct of fields, in which no other may stand."""
    rows = [(key, kind) if key in required else (key, kind, UNSET) for key, kind in fields.items()]
    rows = [(f"{key}_", *rest) for key, *rest in rows]  # a key may be a word of Python
    names = {f"{key}_": key for key in fields}
    unknown = {"forbid_unknown_fields": True, **more}
    return defstruct(name, rows, rename=names, kw_only=True, **unknown)


def policy_type(kind: type) -> Any:
    if issubclass(kind, StrEnum):
        return one_of(kind)
    return int | str if kind is int else str


# What a scalar of YAML may be, by what is made of it: every value is read as text.
TEXT: Final = str | float
NAME: Final = about(str, pattern=r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")
FILLED: Final = about(str, pattern=r"\S")
MOMENT: Final = about(str, format="date-time")
LIST: Final = list[str] | str
_API: Final = "The scopes of the token for each run: read, run, edit, or several of them."


_TOOLS: Final = "The tools of an allow_list or deny_list, such as Read or Bash(git *)."


class Mount(Struct):
    host_path: str | UnsetType = UNSET
    container_path: str | UnsetType = UNSET
    read_only: bool | str | UnsetType = UNSET


class ToolPolicy(Struct, forbid_unknown_fields=True):
    """The tools that the agent may use."""

    mode: Mode
    tools: Annotated[list[str] | UnsetType, Meta(description=_TOOLS)] = UNSET


POLICY_WORDS: Final = {
    "retry": {"examples": ["3 30s"]},
    "timeout": {"examples": ["15m"]},
    "jitter": {"examples": ["5m"]},
    "from": {"examples": ["2026-06-01"]},
    "until": {"examples": ["2026-12-31"]},
    "requires": {"examples": ["gpu"]},
    "api": {"examples": ["read run"]},
}
POLICY: Final = {
    each.option: about(policy_type(each.type), each.help, **POLICY_WORDS.get(each.option, {}))
    for each in PROPERTIES
}
# What YAML may have in place of a type: a scalar for a text, and one item for a list.
IN_YAML: Final[dict[Any, Any]] = {
    list[str]: list[TEXT] | str,
    dict[str, str]: dict[str, TEXT | bool],
}
NESTED: Final = {
    "name": about(NAME, "The name of the agent, which no other agent has."),
    "enabled": about(bool, default=True),
    "extra_mounts": list[Mount],
    "rooms": list[str | dict[str, Any]],
    "tool_policy": ToolPolicy,
}
_WEBHOOK: Final = {
    "if": {
        "anyOf": [
            {"required": ["scheme"], "properties": {"scheme": {"const": "standard"}}},
            {
                "not": {"required": ["scheme"]},
                "properties": {"secret": {"pattern": "^whsec_"}},
            },
        ]
    },
    "then": {
        "properties": {
            name: {
                "description": "whsec_ and the base64 of 24 to 64 bytes, or the name of a secret "
                "with this value.",
                "pattern": r"^whsec_[A-Za-z0-9+/]{32,86}={0,2}$|\$\{",
            }
            for name in ("secret", "old_secret")
        }
    },
}
_LISTED: Final = {
    "if": {"properties": {"mode": {"enum": [Mode.ALLOW_LIST.value, Mode.DENY_LIST.value]}}},
    "then": {"required": ["mode", "tools"]},
}
TASK_KINDS: Final = {
    TaskFieldKind.TEXT: TEXT | None,
    TaskFieldKind.MOMENT: MOMENT | None,
    TaskFieldKind.NUMBER: int | None,
    TaskFieldKind.FLAG: bool | None,
    TaskFieldKind.FLAG_OR_TEXT: bool | str | None,
    TaskFieldKind.TEXTS: list[TEXT] | str | None,
    TaskFieldKind.NUMBERS: list[int] | int | None,
}
TASK: Final = {
    "id": about(int, minimum=0),
    "title": about(TEXT, pattern=r"\S"),
    "scheduled_for": about(MOMENT | None, "The task is blocked until this time."),
    "cron_schedule": about(
        TEXT | None, "When the task recurs, if it is done.", examples=["0 9 * * MON"]
    ),
    "timezone": about(TEXT | None, "The time zone of cron_schedule; default: UTC."),
    "api": about(TEXT | None, _API),
    "catchup": POLICY["catchup"],
}


def workflow() -> dict[str, Any]:
    start = about(Union[tuple(KINDS.values())], "What starts the workflow.")  # noqa: UP007
    every = "Seconds between two requests to GitHub; unused by other sources."
    fields = {
        "name": about(NAME, "The name of the workflow, which no other workflow has."),
        "agent": about(NAME, "The name of the agent to start."),
        **dict.fromkeys(("source", "trigger_config", "source_config"), start),
        "poll_interval": about(int, every, default=POLL, **_WEEK),
        "poll_interval_secs": about(int, "The same as poll_interval.", **_WEEK),
        "enabled": about(bool, default=True),
        "tool_policy": ToolPolicy,
        "prompt_template": about(
            FILLED, "The prompt of the agent; {{fire_time}} and other names are replaced."
        ),
        "prompt_template_file": about(
            str, "The file with the prompt template, relative to this file."
        ),
        "timezone": about(str, "The time zone of a cron source; default: UTC."),
        **{name: POLICY[name] for name in OPTIONS},
    }
    made = closed("Workflow", {key: fields[key] for key in WORKFLOW_KEYS}, ("name", "agent"))
    what = "A file in .agentd/workflows/: a trigger, which starts an agent with a prompt."
    schema = written(made, "Horae workflow file", what)
    schema["$defs"]["WebhookKind"] |= _WEBHOOK
    for name in (kind.__name__ for kind in KINDS.values()):
        schema["$defs"][name]["additionalProperties"] = False
        schema["$defs"][name].pop("description", None)
        for field in schema["$defs"][name]["properties"].values():
            if field.get("type") == "array":
                field["type"] = ["array", "string"]  # a single text may stand alone
    some = [("source", "trigger_config", "source_config")]
    some += [("prompt_template", "prompt_template_file")]
    schema["allOf"] = [{"anyOf": [{"required": [name]} for name in names]} for names in some]
    return schema


def agent() -> dict[str, Any]:
    fields = {**get_type_hints(AgentConfig, include_extras=True), **NESTED}
    for key, kind in fields.items():
        said = getattr(kind, "__metadata__", ())
        if (plain := kind.__origin__ if said else kind) in IN_YAML:
            fields[key] = Annotated[(IN_YAML[plain], *(said or [Meta()]))]
    fields = {key: fields[key] for key in AGENT_KEYS}
    what = "A file in .agentd/agents/: the definition of an agent."
    return written(closed("Agent", fields, ("name",)), "Horae agent file", what)


def task() -> dict[str, Any]:
    fields = {name: TASK.get(name, TASK_KINDS[kind]) for name, kind in FIELDS.items()}
    made = closed("Task", fields, ("id", "title"), forbid_unknown_fields=False)
    what = "The fields of a task in Markdown, between two lines of ---. Unknown fields are kept."
    return written(made, "Horae task", what)


def settings() -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {"": {}}
    for each in SETTINGS:
        *table, key = each.path
        said = {} if each.default is None else {"default": each.default}
        what = f"{each.help} ({each.kind.words})"
        tables.setdefault("".join(table), {})[key] = about(each.kind.shape, what, **said)
    source = about(str, "file:PATH, cmd:COMMAND or env:NAME.", pattern="^(file|cmd|env):")
    fields = tables.pop("") | {SECRETS: dict[str, source]}
    fields |= {name: closed(name.capitalize(), rows, ()) for name, rows in tables.items()}
    return written(closed("Settings", fields, ()), "Horae settings", "The file horae.toml.")


def settings_page(page: str) -> str:
    """Return the reference of settings with its tables anew."""
    rows: list[tuple[str, ...]] = []
    reasons: dict[str, list[str]] = {}
    for each in SETTINGS:
        default = "–" if each.default is None else f"`{each.default!s}`"
        default = default.lower() if isinstance(each.default, bool) else default
        variables = ", ".join(f"`{name}`" for name in each.variables)
        rows.append((f"`{each.name}`", each.kind.words, default, variables, each.help))
    for name, why in sorted(GUARDED.items()):
        reasons.setdefault(why, []).append(f"`{name}`")
    page = with_table(page, "setting", rows)
    return with_table(page, "effect", [(why, ", ".join(names)) for why, names in reasons.items()])


def with_table(page: str, column: str, rows: list[tuple[str, ...]]) -> str:
    """Return a page with other rows in the table whose first column has this name."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    head = rf"(?m)(^\| {column} \|.*\n\|[-|]+\|\n)(?:\|.*\n)+"
    before, found, after = re.split(head, page)
    return before + found + lines + after


def written(kind: type, title: str, description: str) -> dict[str, Any]:
    _, defs = schema_components([kind], ref_template="#/$defs/{name}")
    whole = defs.pop(kind.__name__)
    if "ToolPolicy" in defs:
        defs["ToolPolicy"] |= _LISTED
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = {**head, **whole, "title": title, "description": description}
    return folded({**schema, "$defs": defs} if defs else schema)


def folded(schema: Any) -> Any:
    """Return a schema in which alternatives that differ by their type are one with all types.

    A word such as `pattern` or `items` is about one type only, so both mean the same.
    """
    if isinstance(schema, list):
        return [folded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: folded(each) for key, each in schema.items() if key != "discriminator"}
    parts = made.get("anyOf", [])
    if parts and all(isinstance(each.get("type"), str) for each in parts):
        del made["anyOf"]
        for each in parts:
            made |= each | {"type": [*made.get("type", []), each["type"]]}
    return made


def schemas() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    made = {"agent": agent(), "settings": settings(), "task": task(), "workflow": workflow()}
    return {
        f"{name}.schema.json": f"{json.dumps(schema, indent=2)}\n" for name, schema in made.items()
    }


if __name__ == "__main__":
    for name, text in schemas().items():
        (PLACE / name).write_text(text, encoding="utf-8")
    PAGE.write_text(settings_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
