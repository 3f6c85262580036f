"""The desk: where people ask what is, what was and why, and say what should be.

Everything that a face of the house shows or changes goes through here, so a command, the
socket and a page say the same. A question is answered with plain frozen data whose `data`
is its JSON; a request that cannot be honoured raises an error that says what would be right.

    base        who is meant by a word          shapes       what people are told
    looking     what is, what was and why       standing     how things stand
    asking      rest, run, tick, cancel, prune  backfilling  what is run after all
    errors      what cannot be
"""

from __future__ import annotations

from horae.core.service.backfilling import MOST, Backfilling, no_progress
from horae.core.service.base import Dial
from horae.core.service.errors import (
    AmbiguousEntryError,
    CannotRunError,
    EntryNotFoundError,
    EntryStateError,
    ReceiptNotFoundError,
    RequestError,
    RunNotFoundError,
    RunStateError,
)
from horae.core.service.shapes import (
    Account,
    AgentLine,
    Backfill,
    Cancelled,
    EngineFacts,
    EntryLine,
    Happened,
    History,
    Line,
    Rest,
    Roll,
    RunLine,
    Standing,
    Why,
)
from horae.core.service.standing import DAY, STUCK, Standings

__all__ = [
    "DAY",
    "MOST",
    "STUCK",
    "Account",
    "AgentLine",
    "AmbiguousEntryError",
    "Backfill",
    "Cancelled",
    "CannotRunError",
    "Desk",
    "Dial",
    "EngineFacts",
    "EntryLine",
    "EntryNotFoundError",
    "EntryStateError",
    "Happened",
    "History",
    "Line",
    "ReceiptNotFoundError",
    "RequestError",
    "Rest",
    "Roll",
    "RunLine",
    "RunNotFoundError",
    "RunStateError",
    "Standing",
    "Why",
    "no_progress",
]


class Desk(Backfilling, Standings):
    """Answers questions about one ledger, and files what people ask for."""
