"""How an answer becomes a record that is the same on every machine and on every day.

Moments are not touched: every clock is stopped. Replaced are, by these rules and no others: places
(`<root>`), what is drawn at random (`<id-1>`, `<secret>`), what is counted from bytes (`<digest>`,
`<commit>`), and what the machine chooses (`<port>`, `<user>`, `<version>`).

What is said to people is taken out, so that a rewording leaves the structure as it is: `~` stands
in its place, and the words stand in a record of their own.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pwd import getpwuid
from typing import Any

WORDS = "~"
MOST = 20  # elements of a list; of the others only the number is recorded

# Keys whose text is for people. Programs read the `code` or `status` beside it.
SAID = frozenset(
    {
        *("message", "reason", "last_reason", "fix", "hint", "detail", "words", "remedy", "found"),
        *("rule", "problems", "description", "summary", "notes", "said", "obstacle", "way"),
        *("broken", "cause", "clock_changes", "error", "policy", "warnings", "won"),
    }
)
# Keys that hold a word for programs, or a sentence for people.
SENTENCE = frozenset({"what", "status"})
# Keys whose number the machine decides.
HIDDEN = frozenset({"pid", "bytes", "cpu_seconds", "max_rss", "seconds", "duration_secs", "output"})

_USER = re.escape(getpwuid(os.getuid()).pw_name)
RULES = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "id"),
    (re.compile(r"\b[0-9a-f]{12}\b|\b\d{6}-[0-9a-f]{6}\b|(?<=-)[0-9a-f]{16}\b"), "id"),
    (re.compile(r"whsec_[A-Za-z0-9+/=]+"), "secret"),
    (re.compile(r'"[0-9a-f]{32}"'), '"<etag>"'),
    (re.compile(r"(?<=/login/)[\w-]{20,}|(?<=/calendar/)[0-9a-f]{20,}"), "<secret>"),
    (re.compile(r"\bhorae_[0-9a-f]{64}\b"), "<secret>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<commit>"),
    (re.compile(r"\bhorae-[0-9a-f]{24}(?=\.localhost|=)"), "horae-<random>"),
    (re.compile(r"(?<==)[A-Za-z0-9_-]{32,}(?=; )"), "<secret>"),  # of a cookie
    (re.compile(r"(?<=127\.0\.0\.1:)[1-9]\d{3,4}\b|(?<=localhost:)[1-9]\d{3,4}\b"), "<port>"),
    (re.compile(r"\bUnprocessable (?:Entity|Content)\b"), "Unprocessable <version>"),
    (re.compile(r"(?<=\bprocess )\d+\b"), "<pid>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"),
        "<time>",
    ),  # of a file: clocks show whole seconds
    (re.compile(r"\b1\.\d{6,}e\+09\b"), "<time>"),  # when a counter of Prometheus was made
    (re.compile(rf"(?<=\bcli:){_USER}\b|(?<=\bby ){_USER}\b"), "<user>"),
    (re.compile(rf"\b{_USER} <{_USER}(?=@)"), "<user> <<user>"),
)


class Plain:
    """The rules, with the places of one story and the names it has met so far."""

    def __init__(self, places: dict[str, str]) -> None:
        # The longest first: one place may be inside another.
        self._places = sorted(places.items(), key=lambda each: -len(each[0]))
        self._met: dict[str, dict[str, str]] = {}

    def text(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        for pattern, name in RULES:
            text = pattern.sub(partial(self._name, name), text)
        return text

    def _name(self, name: str, found: re.Match[str]) -> str:
        if "<" in name:
            return name
        met = self._met.setdefault(name, {})
        return met.setdefault(found[0], f"<{name}-{len(met) + 1}>")

    def data(self, value: Any) -> Any:
        """Return JSON with every text by the rules, and with long lists cut."""
        match value:
            case str():
                return self.text(value)
            case list():
                rest = [{"and more": len(value) - MOST}] if len(value) > MOST else []
                return [*map(self.data, value[:MOST]), *rest]
            case dict():
                return {self.text(key): self.data(each) for key, each in value.items()}
        return value
