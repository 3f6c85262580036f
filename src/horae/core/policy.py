"""The properties that say how an entry wants to be kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from horae.core.scope import API_FIX, api_scopes
from horae.errors import HoraeError, ScheduleError
from horae.org.timestamp import parse_timestamp
from horae.timing.duration import parse_duration
from horae.timing.repeater import parse_at
from horae.timing.rfc3339 import parse_rfc3339
from horae.timing.zone import instant, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOST_FIX: Final = "write labels of a node, such as gpu, or its name"
_SHOWN: Final = 60
_LABEL: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_RFC3339: Final = re.compile(r"[0-9-]{10}[Tt]")


class CatchUp(StrEnum):
    """What becomes of moments that passed while nobody looked."""

    ALL = "all"  # the newest ten run, oldest first
    LATEST = "latest"  # one late run stands for all
    NONE = "none"  # none runs; each leaves its receipt


class Overlap(StrEnum):
    """What becomes of a moment that comes while the last run still goes on."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a run that ended badly is tried again, and after how long at first."""

    attempts: int
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Policy:
    """How an entry wants to be kept; what is None is as its rule has it."""

    catchup: CatchUp | None = None
    overlap: Overlap = Overlap.SKIP
    retry: Retry | None = None
    timeout: timedelta | None = None
    jitter: timedelta = timedelta(0)
    pause_after: int | None = None
    until: datetime | None = None
    requires: tuple[str, ...] = ()  # labels of the machine that runs it
    api: tuple[str, ...] = ()  # scopes of the token that its runs get


DEFAULT: Final = Policy()


def labels(text: str) -> tuple[str, ...]:
    """Return the labels that a machine must have, each once; ValueError: some are none.

    >>> labels("gpu, berlin gpu")
    ('gpu', 'berlin')
    """
    found = tuple(dict.fromkeys(re.split(r"[\s,]+", text.strip())))
    if not all(map(_LABEL.fullmatch, found)):
        raise ValueError(text)
    return found


class PolicyError(ScheduleError):
    """A property that says how an entry wants to be kept, and cannot be read."""

    code = "policy"

    def __init__(self, key: str, value: str, *, reason: str) -> None:
        self.key = key
        self.value = value
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        super().__init__(f":{key}: {shown}: {reason}")


def policy_of(props: Mapping[str, str], *, zone_name: str) -> Policy:
    """Return the policy that properties ask for; raises PolicyError if one cannot be read."""
    policy = Policy()
    for key, understood in POLICIES.items():
        value = props.get(key)
        if value is None:
            continue
        try:
            policy = understood(policy, value, zone_name)
        except PolicyError:
            raise
        except (HoraeError, ValueError) as error:
            reason = str(error) if isinstance(error, HoraeError) else _EXPECTED[key]
            raise PolicyError(key, value, reason=reason) from None
    return policy


def _retry(text: str) -> Retry:
    """Return the retries of `3 30s`; the wait may be left out."""
    attempts, _, wait = text.partition(" ")
    if not attempts.isascii() or not attempts.isdecimal() or not 0 < int(attempts[:6]) <= 100:
        raise ValueError
    return Retry(int(attempts), parse_duration(wait.strip() or "30s"))


def _until(text: str, zone_name: str) -> datetime:
    """Return the last moment that `:UNTIL:` allows; a date without a time is meant whole."""
    if _RFC3339.match(text):
        return parse_rfc3339(text)
    stamp = parse_timestamp(text if text.startswith(("<", "[")) else f"<{text}>")
    if stamp is None:
        raise ValueError
    anchor = parse_at(stamp.at)
    place = zone(zone_name)
    if anchor.has_time:
        return instant(anchor.start, place)
    # Up to the next midnight, as the last hour of a day may come twice.
    try:
        return instant(anchor.start + timedelta(days=1), place) - timedelta(microseconds=1)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or int(text) < 1:
        raise ValueError
    return int(text)


POLICIES: Final[dict[str, Callable[[Policy, str, str], Policy]]] = {
    "CATCHUP": lambda policy, text, _: replace(policy, catchup=CatchUp(text.lower())),
    "OVERLAP": lambda policy, text, _: replace(policy, overlap=Overlap(text.lower())),
    "RETRY": lambda policy, text, _: replace(policy, retry=_retry(text)),
    "TIMEOUT": lambda policy, text, _: replace(policy, timeout=parse_duration(text)),
    "JITTER": lambda policy, text, _: replace(policy, jitter=parse_duration(text)),
    "PAUSE-AFTER": lambda policy, text, _: replace(policy, pause_after=_number(text)),
    "UNTIL": lambda policy, text, place: replace(policy, until=_until(text, place)),
    "HOST": lambda policy, text, _: replace(policy, requires=labels(text)),
    "API": lambda policy, text, _: replace(policy, api=api_scopes(text)),
}
_EXPECTED: Final = {
    "CATCHUP": "write all, latest or none",
    "OVERLAP": "write skip, queue or allow",
    "RETRY": "write the number of retries (at most 100) and the first wait, such as 3 30s",
    "TIMEOUT": "write a duration such as 15m",
    "JITTER": "write a duration such as 5m",
    "PAUSE-AFTER": "write a number of failures, such as 5",
    "UNTIL": "write a date such as 2026-12-31",
    "HOST": HOST_FIX,
    "API": API_FIX,
}
