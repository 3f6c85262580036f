"""What a node shows while its database cannot be reached: the last that it knows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs
from starlette.responses import HTMLResponse

from horae.core.explain import length_text
from horae.core.lease import NodeLine, NodePage
from horae.core.receipt import Filed, Status
from horae.core.text import moment_text
from horae.core.views import EngineFacts, StatusReport, receipt_line, zoned
from horae.web.answer import HEADERS, as_json
from horae.web.forward import NoLeaderError, refuse
from horae.web.page import sheet
from horae.web.page.now import node_rows

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

_STATIC: Final = Path(__file__).parent / "page" / "static"
_EVERY: Final = 5  # seconds after which the page is asked for again


@dataclass(frozen=True, slots=True)
class LastKnownState:
    node: str
    at: datetime
    zone: str
    engine: EngineFacts
    since: datetime | None  # when the database was last reached
    left: timedelta  # for which runs may continue without it, at most
    runs: Sequence[Filed]  # of this node
    unrecorded: int  # runs of this node that have ended since
    nodes: Sequence[NodeLine]  # as they were then

    @property
    def words(self) -> str:
        since = "" if self.since is None else f" since {moment_text(self.since, self.zone)}"
        said = [f"{self.node} has not reached the database{since}, and nothing starts"]
        if self.runs:
            said.append(f"its runs continue for at most {length_text(self.left)}")
        if self.unrecorded:
            said.append(f"{self.unrecorded} ended, to be recorded when the database is back")
        return f"{'; '.join(said)}. This is the last known state."

    def status(self) -> StatusReport:
        lines = []
        for filed in self.runs:
            receipt = structs.replace(filed.receipt, status=Status.RUNNING)
            shown = structs.replace(filed, receipt=receipt, machine=self.node)
            lines.append(receipt_line(shown, filed.title, self.zone))
        return StatusReport(
            at=zoned(self.at, self.zone),
            zone=self.zone,
            stall=self.words,
            engine=self.engine.line,
            entries=0,
            counts={Status.RUNNING: len(lines)},
            running=tuple(lines),
            problems=self.engine.problems,
        )

    def answer(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        if scope["method"] in {"GET", "HEAD"}:
            if path == "/api/v1/status":
                return as_json(self.status())
            if path == "/api/v1/nodes":
                return as_json(NodePage([*self.nodes]))
            if not path.startswith("/api/") and b"text/html" in dict(scope["headers"]).get(
                b"accept", b""
            ):
                return HTMLResponse(self._page(), headers=HEADERS)
        return refuse(NoLeaderError(self.words.removesuffix(".")), scope)

    def _page(self) -> str:
        values: dict[str, object] = {"words": self.words, "node": self.node}
        values |= {"running": self.status().running, "nodes": node_rows(self.nodes)}
        page = sheet.Sheet("absence.html", "Last known state", "", values, every=_EVERY)
        look = sheet.PageTime(self.at, self.zone)
        common = {
            "event": 0,
            "trouble": None,
            "started_at": None,
            "attention": 0,
            "plan_zone": self.zone,
        }
        return sheet.written(sheet.templates(()), page, look, _static_version(), common)


@cache
def _static_version() -> str:
    return sheet.Static.read(_STATIC).version
