"""Prompts with places to fill in, such as `It is {{fire_time}}, water the garden`.

One pass over a fixed list of names. What is filled in is never looked at again, so a value
that looks like a place stays what it is. There is no escape, no filter and no nesting.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST: Final = 256 * 1024  # characters of a template
# These may have several lines; every other value is one line, whatever somebody put into it.
LONG: Final = frozenset({"body", "metadata"})
NO_VARIABLES: Final = "Template contains no {{variables}}; the same text will be sent every time"

_PLACE: Final = re.compile(r"\{\{([^{}]*)\}\}")
_ANY_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def variables(template: str) -> list[str]:
    """Return the names in a template, each once, in the order of the text.

    >>> variables("{{ title }}: {{body}} ({{title}})")
    ['title', 'body']
    """
    return list(dict.fromkeys(found.strip() for found in _PLACE.findall(template)))


def problems(template: str, known: Iterable[str]) -> list[str]:
    """Return what is wrong with a template whose places may have the *known* names.

    >>> problems("Report for {{fire_tme}}.", ["fire_time", "title"])
    ["unknown template variable '{{fire_tme}}'. Did you mean '{{fire_time}}'?
      Known variables: fire_time, title"]
    """
    if not template.strip():
        return ["the template is empty"]
    if len(template) > LONGEST:
        return [f"the template has more than {LONGEST:,} characters"]
    names = list(known)
    found = [_unknown(name, names) for name in variables(template) if not _is_known(name, names)]
    # Places are blanked, not cut out: what is left must not grow together, or move.
    rest = _PLACE.sub(lambda place: " " * len(place[0]), template)
    if (at := rest.find("{{")) >= 0:
        found.append(f"unclosed template placeholder at position {at}")
    return found


def render(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its places filled in; a name without a value stays as it is.

    >>> render("{{ title }} is {{late}}", {"title": "{{late}}"})
    '{{late}} is {{late}}'
    """

    def filled(place: re.Match[str]) -> str:
        name = place[1].strip()
        value = values.get(name)
        return place[0] if value is None else shown(name, value)

    return _PLACE.sub(filled, template)


def shown(name: str, value: str) -> str:
    r"""Return a value as it may stand in a prompt: one line, unless its name may have more.

    >>> shown("title", "two\nlines"), shown("body", "two\nlines\x00")
    ('two lines', 'two\nlines�')
    """
    if name in LONG:
        return _CONTROL.sub("\ufffd", value.replace("\r\n", "\n"))
    return _ANY_CONTROL.sub(" ", value)


def _is_known(name: str, known: list[str]) -> bool:
    """Tell whether a name is on the list, or one of the caller's own facts."""
    own = name.removeprefix("metadata.")
    return name in known or (own != name and own.replace("-", "_").isidentifier())


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f" Did you mean '{{{{{near[0]}}}}}'?" if near else ""
    listed = ", ".join(known)
    return f"unknown template variable '{{{{{name[:60]}}}}}'.{hint} Known variables: {listed}"
