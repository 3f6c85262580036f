"""What is wrong with a request is said in our words, with the path to it."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.views import RequestError
from horae.sources.triggers.routes import FilesRequest
from horae.web.api import EntriesQuery, PruneRequest, ReceiptsQuery, RunRequest, WhyQuery
from horae.web.fields import Fields, parsed

NEAR = {"name": "near", "enabled": True}
SAID: dict[str, tuple[type[Fields], dict[str, Any]]] = {
    "unknown field 'nose'; the fields are note, parent_run": (RunRequest, {"nose": 1}),
    "note must be a string, not an object": (RunRequest, {"note": {}}),
    "note must have at most 10,000 characters": (RunRequest, {"note": "x" * 10_001}),
    "parent_run must be a whole number, not true": (RunRequest, {"parent_run": True}),
    "parent_run must be a whole number, not a number out of range": (
        RunRequest,
        {"parent_run": -1},
    ),
    "limit must be a whole number, not 'x'": (EntriesQuery, {"limit": "x"}),
    "limit must be from 1 to 1000, not 0": (EntriesQuery, {"limit": "0"}),
    "gone must be true or false, not 'TRUE'": (EntriesQuery, {"gone": "TRUE"}),
    "entry is missing": (WhyQuery, {"entry": ""}),
    "since must be a time like 2026-06-06T09:00:00Z, not 5": (ReceiptsQuery, {"since": 5}),
    "before is missing; write it like 2026-06-06T09:00:00Z": (PruneRequest, {"before": None}),
    "coalesced, missed, limited, not 'a - at `$.b`'": (ReceiptsQuery, {"status": ["a - at `$.b`"]}),
    "definitions must be a list, not 7": (FilesRequest, {"definitions": 7}),
    "definitions[0].what is missing": (FilesRequest, {"definitions": [{}]}),
    "definitions[0].places[...][4] must be a whole number": (
        FilesRequest,
        {
            "definitions": [
                {"what": "agent", "file": "", "said": NEAR, "places": {"a": [0, 0, 0, 0, {}]}}
            ]
        },
    ),
    "definitions[0]: `what` must be agent or workflow": (
        FilesRequest,
        {"definitions": [{"what": "", "file": "", "said": {}, "places": {}}]},
    ),
    "definitions[1].what must be a string, not 1": (
        FilesRequest,
        {"definitions": [{"what": "agent", "file": "", "said": NEAR, "places": {}}, {"what": 1}]},
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_a_field_that_is_wrong_is_named_with_what_it_must_be(said: str) -> None:
    kind, given = SAID[said]
    with pytest.raises(RequestError) as refused:
        parsed(given, kind)
    assert str(refused.value).endswith(said)


def test_null_is_as_if_a_field_were_missing_and_a_text_may_stand_for_a_number_or_a_flag() -> None:
    assert parsed({"note": None, "parent_run": "7"}, RunRequest) == RunRequest(parent_run=7)
    assert parsed({"gone": "1", "limit": "5"}, EntriesQuery) == EntriesQuery(gone=True, limit=5)
