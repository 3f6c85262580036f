"""Alerts, entries that follow others: `:AFTER: failed stuck of nightly-backup`.

No alert follows another alert, so they cannot go round in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.decide import GRACE
from horae.core.entry import AfterRule, Occasion
from horae.core.receipt import BAD, BROKEN, ENDS, Status
from horae.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

STUCK: Final = 3  # bad ends in a row
LOOKED_BACK: Final = 20  # receipts before one, that say what it is an occasion for
_WORDS: Final = ", ".join(Occasion)


class AfterError(ScheduleError):
    code = "after"

    def __init__(self, text: str, *, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(f":AFTER: {text[:60]}: {reason}")


def parse_after(text: str) -> AfterRule:
    """Return the rule of an `:AFTER:`.

    >>> parse_after("failed of nightly-backup")
    AfterRule(occasions=(<Occasion.FAILED: 'failed'>,), of='nightly-backup')
    >>> parse_after("missed").of
    ''
    """
    said, _, of = f" {text.strip()} ".partition(" of ")
    words = said.replace(",", " ").split()
    unknown = next((word for word in words if word not in set(Occasion)), None)
    if not words or unknown is not None:
        what = f"{unknown!r} is not an event" if unknown else "no event is named"
        reason = f"{what}; write one or more of {_WORDS}, and optionally `of ENTRY`"
        raise AfterError(text, reason=reason)
    of = of.strip()
    return AfterRule(tuple(dict.fromkeys(map(Occasion, words))), "" if of == "all" else of)


def occasions(
    status: Status, *, lateness: timedelta, before: Sequence[Status], key: str = ""
) -> frozenset[Occasion]:
    """Return what a final receipt is an occasion for; *before* are earlier ends, newest first."""
    found = {Occasion.BROKEN} if key.startswith(BROKEN) else set()
    if status in BAD:
        found.add(Occasion.FAILED)
        ends = [each for each in before if each in ENDS][:STUCK]
        if all(each in BAD for each in ends[: STUCK - 1]) and len(ends) >= STUCK - 1:
            is_first = len(ends) < STUCK or ends[STUCK - 1] not in BAD
            found |= {Occasion.STUCK} if is_first else set()
    elif status in ENDS:
        last = next((each for each in before if each in ENDS), None)
        found |= {Occasion.RECOVERED} if last in BAD else set()
    if status in ENDS and lateness > GRACE:
        found.add(Occasion.LATE)
    if status is Status.MISSED:
        found.add(Occasion.MISSED)
    return frozenset(found)


def follows(rule: AfterRule, *, names: Sequence[str], agents: Sequence[str]) -> bool:
    """Tell whether a rule waits for an entry that goes by these names, or needs these agents.

    >>> follows(parse_after("failed of agent:wren"), names=["Digest"], agents=["wren"])
    True
    """
    return not rule.of or rule.of in names or rule.of in {f"agent:{name}" for name in agents}
