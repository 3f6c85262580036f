"""The properties of an entry: those that are read, and those that seem to be.

Other properties are free, as in Org. A property that seems to be read is a misspelled one, or a
word of another scheduler.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from horae.core.entry import PROPERTIES
from horae.core.headline import is_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.org.plan import Headline

# Without them it runs at another time, or never.
WHEN: Final = ("SCHEDULE", "AFTER", "TZ", *(each.key for each in PROPERTIES if each.decides_times))
WHAT: Final = ("COMMAND", "POST")
KNOWN: Final = tuple(
    dict.fromkeys((*WHEN, *WHAT, "ENV", "AGENT", "ID", *(each.key for each in PROPERTIES)))
)

_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "SCHEDULE": ("CRON", "CRONTAB", "CRON_SCHEDULE", "ONCALENDAR", "SCHEDULED"),
    "COMMAND": ("CMD", "EXEC", "EXECSTART", "SCRIPT", "PROGRAM"),
    "POST": ("WEBHOOK",),
    "TZ": ("TIMEZONE", "TIME_ZONE", "ZONE", "CRON_TZ"),
    "ENV": ("ENVIRONMENT", "ENV_VARS"),
    **{each.key: each.other_names for each in PROPERTIES},
}
_WORDS: Final = frozenset({"FORM"})  # near to one that is read, and free all the same
_MEANT: Final = {
    name.replace("_", ""): key for key, names in _OTHER_NAMES.items() for name in names
}
_ALERT: Final = "add a headline with `:AFTER: failed` and :COMMAND: or :POST:"
_DAYS: Final = "name the days in :SCHEDULE:, or pause the entry with `horae pause --until`"
_STEPS: Final = "make both components of one :workflow:, so that one takes the other's output"
_REST: Final = "write COMMENT before the title, or run `horae pause`"
_CALENDAR: Final = "write a cron expression in :SCHEDULE:, or SCHEDULED: with a repeater"
_USER: Final = "commands run as the engine's user; use sudo -u NAME in :COMMAND:"
_FOLDER: Final = "commands run in the plan's directory; use sh -c 'cd DIR && …' in :COMMAND:"
_LOG: Final = "`horae logs` shows the output; to redirect it, use sh -c '… > FILE'"
_ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("EXDATE", "EXDATES", "HOLIDAYS", "HOLIDAY", "BLACKOUT", "EXCEPT"), _DAYS),
    **dict.fromkeys(("RRULE", "RDATE", "DTSTART", "EVERY", "INTERVAL", "FREQUENCY"), _CALENDAR),
    **dict.fromkeys(("MAILTO", "NOTIFY", "ALERT", "ONFAILURE", "ONSUCCESS", "ONERROR"), _ALERT),
    **dict.fromkeys(("DEPENDS", "DEPENDSON", "DEPENDENCIES", "RUNAFTER"), _STEPS),
    **dict.fromkeys(("USER", "RUNAS", "RUNASUSER"), _USER),
    **dict.fromkeys(("CWD", "WORKDIR", "WORKINGDIR", "WORKINGDIRECTORY"), _FOLDER),
    **dict.fromkeys(("STDOUT", "STDERR", "LOGFILE"), _LOG),
    **dict.fromkeys(("ENABLED", "DISABLED", "PAUSED"), _REST),
    "SHELL": "use sh -c '…' in :COMMAND:",
    "NICE": "use nice in :COMMAND:",
    "BUDGET": "set the limits of the agent's program in its command",
    "DEADLINE": "write DEADLINE: <…> on the line under the headline",
}


def is_near_entry(headline: Headline) -> bool:
    """Tell whether a headline is an entry, or would be if it were spelled right."""
    if "agent" in headline.tags:
        return False
    props = headline.props
    if is_entry(headline) or "SCHEDULE" in props:
        return True
    meant = {key: meant_by(key) for key in props if key not in KNOWN}
    spelled = {each for key, each in meant.items() if key not in _OTHER_NAMES.get(each or "", ())}
    is_timed = "SCHEDULE" in meant.values() or headline.scheduled is not None
    return bool(spelled & {"SCHEDULE", "COMMAND"}) or (is_timed and "COMMAND" in meant.values())


def meant_by(key: str) -> str | None:
    """Return the property that a key was probably meant to be; None for one that is free.

    >>> [meant_by(key) for key in ("SHEDULE", "CATCH-UP", "PAUSE_AFTER", "OVERLAPS", "TIMEZONE")]
    ['SCHEDULE', 'CATCHUP', 'PAUSE-AFTER', 'OVERLAP', 'TZ']
    >>> [meant_by(key) for key in ("EFFORT", "COMMENT", "COST", "CATEGORY", "SCHEDULE")]
    [None, None, None, None, None]
    """
    return None if key in KNOWN else _meant(key)


def advice_on(key: str) -> str | None:
    """Return what to write instead of a word that only a scheduler's user writes.

    >>> advice_on("SHELL"), advice_on("EFFORT")
    ("use sh -c '…' in :COMMAND:", None)
    """
    return _ADVICE.get(_joined(key))


@lru_cache(maxsize=1024)  # a plan has few keys, and each of them often
def _meant(key: str) -> str | None:
    joined = _joined(key)
    if joined in _MEANT:
        return _MEANT[joined]
    if joined in _ADVICE or joined in _WORDS:
        return None
    return next((known for known in KNOWN if _is_near(joined, known.replace("-", ""))), None)


def _joined(key: str) -> str:
    return key.replace("-", "").replace("_", "")


def _is_near(word: str, known: str) -> bool:
    """Tell whether a word is a misspelled known one, or its plural."""
    if word in {known, f"{known}S", f"{known}ES", known.removesuffix("S")}:
        return True
    if len(known) <= 2 or abs(len(word) - len(known)) > 2:
        return False
    slips = _slips(word, known)
    if len(known) <= 4:  # it has many neighbours (COST, HOST): a swap or a doubled letter counts
        return slips == 1 and sorted(set(word)) == sorted(set(known))
    return slips <= (1 if len(known) <= 7 else 2)


def _slips(word: str, known: str) -> int:
    """Return how many letters are wrong, missing, too many or swapped with their neighbour.

    >>> _slips("SHCEDULE", "SCHEDULE"), _slips("COMAND", "COMMAND"), _slips("TIMOUTS", "TIMEOUT")
    (1, 1, 2)
    """
    before: list[int] = []
    row = list(range(len(known) + 1))
    for at, letter in enumerate(word, 1):
        before, above, row = row, before, [at]
        for to, other in enumerate(known, 1):
            best = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != other))
            if at > 1 and to > 1 and letter == known[to - 2] and word[at - 2] == other:
                best = min(best, above[to - 2] + 1)
            row.append(best)
    return row[-1]
