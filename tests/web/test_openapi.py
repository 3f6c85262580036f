"""The document of the API is complete and true: what it says is what an engine answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from core.world import story
from horae.web.api import operations
from horae.web.openapi import document, page
from horae.web.serve import HEADER
from scale import SCALE, scaled
from web.stage import engine, engine_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDLESS = "/api/v1/events/stream"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = document(operations())
schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path=ENDLESS)
schema.config.phases.coverage.enabled = SCALE >= 1  # every limit of every field: some minutes
# What is there, so that not every path leads nowhere.
THERE = {"entry": ["Digest", "Fails", "4"], "number": ["1", "2", "3"], "id": ["worker"]}
TASK = "---\nid: 1\ntitle: Water\nstatus: todo\n---\nEvery bed.\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the root of an engine that runs in a process of its own."""
    root = tmp_path_factory.mktemp("engine")
    (root / "board" / "tasks").mkdir(parents=True)
    (root / "board" / "tasks" / "001-water.md").write_text(TASK)
    with engine_process(root):
        wire = httpx.HTTPTransport(uds=str(root / ".horae" / "socket"), verify=False)
        with httpx.Client(transport=wire, base_url="http://localhost") as client:
            for entry in ("Digest", "Fails"):
                client.post(f"/api/v1/entries/{entry}/run", json={}).raise_for_status()
            made = client.post("/agents", json={"name": "worker", "command": ["cat"]})
            assert made.status_code == 201, made.text
            link = client.post("/api/v1/login", json={}).json()["url"]
            (root / "address").write_text(f"http://127.0.0.1:{httpx.URL(link).port}")
        yield root


@schema.parametrize()
@settings(
    max_examples=scaled(200, few=4),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
)
def test_whatever_is_asked_for_is_answered_as_the_document_says(case: Any, root: Path) -> None:
    for name, known in THERE.items():
        given = str(case.path_parameters.get(name, ""))
        if given and len(given) % 4:
            case.path_parameters[name] = known[len(given) % len(known)]
    token = (root / ".horae" / "token").read_text().strip()
    try:
        case.call_and_validate(
            base_url=(root / "address").read_text(),
            headers={"Authorization": f"Bearer {token}"},
            checks=CHECKS,
            timeout=20,
        )
    except (requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError):
        # Whoever sends a longer header than there is room for may lose the connection.
        assert len(quote(str(case.query))) > HEADER


def test_the_document_has_every_route_and_no_other() -> None:
    told = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert told == {(each.method, each.shown_path) for each in operations()}
    names = [item["operationId"] for each in DOCUMENT["paths"].values() for item in each.values()]
    assert len(names) == len(set(names))


def test_every_operation_says_what_it_does_and_who_may() -> None:
    for each in operations():
        said = DOCUMENT["paths"][each.shown_path][each.method.lower()]
        assert said["summary"].endswith("."), each.path
        needed = [{"token": [each.scope.value]}] if each.scope else []
        assert said["security"] == needed
        named = {part["name"] for part in said.get("parameters", ()) if part["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", each.shown_path))


def test_every_reference_leads_somewhere() -> None:
    found = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(DOCUMENT)))
    assert found == set(DOCUMENT["components"]["schemas"])


@story
async def test_the_document_and_its_page_are_there_and_need_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path) as here:
        assert (await here.client.get("/openapi.json")).json() == DOCUMENT
        shown = await here.client.get("/docs")
        assert shown.headers["content-type"] == "text/html; charset=utf-8"
        assert not re.search(r"(?:src|href)=\"(?!/)", shown.text)
        assert "<script" not in shown.text
        for each in operations():
            assert f"{each.method} {each.shown_path}" in page(operations())
