"""The log of an engine: events of the ledger on stdout, all else on stderr, as text or JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from horae.cli import options, output
from horae.core.entry import key_time
from horae.timing.zone import zone

EVENTS: Final = "horae.events"  # the logger of what is in the ledger
LEVELS: Final = ("debug", "info", "warning", "error")
FIELDS: Final = ("source", "entry", "receipt", "run")  # that a record may carry


level_option = options.choice_option(
    "--log-level", "The least important lines to write.", LEVELS, name="level", default="info"
)


@contextmanager
def logging_to(form: str, *, level: str, zone_name: str) -> Iterator[None]:
    """Write what is logged inside the block: `plain` in a zone, `json` in UTC, or on a `screen`."""
    handler = LogHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else PlainFormatter(zone_name))
    handler.setLevel(level.upper())
    root, ours = logging.getLogger(), logging.getLogger("horae")
    before = ours.level
    root.addHandler(handler)  # other packages log warnings and errors here, too
    ours.setLevel(level.upper())
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        ours.setLevel(before)


class LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the reader is gone or the disk is full: the engine goes on
            output.echo(self.format(record), err=record.name != EVENTS)


class PlainFormatter(logging.Formatter):
    def __init__(self, zone_name: str) -> None:
        super().__init__()
        self._zone_name = zone_name

    def format(self, record: logging.LogRecord) -> str:
        word = getattr(record, "word", None) or record.levelname.lower()
        text = record.getMessage()
        text += f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return plain_line(_at(record), self._zone_name, word, text)


def plain_line(at: datetime, zone_name: str, word: str, text: str) -> str:
    when = f"{at.astimezone(zone(zone_name)):%Y-%m-%d %H:%M:%S} {zone_name}"
    return f"{when}  {word:<11}  {text}".rstrip().replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        data = {"at": key_time(_at(record)), "level": record.levelname.lower()}
        data |= {"logger": record.name, "message": record.getMessage()}
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return output.json_text(getattr(record, "event", fields) | data, separators=(",", ":"))


def _at(record: logging.LogRecord) -> datetime:
    at = getattr(record, "at", None)
    return at if isinstance(at, datetime) else datetime.fromtimestamp(record.created, UTC)
