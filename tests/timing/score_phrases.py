"""Score a set of snippets or phrases: python tests/timing/score_phrases.py [--list] FILE...

A snippet has `text` (a headline and its body), `rule` (cron, or a timestamp), `drift`, `where`;
a phrase has `phrase`, `ambiguous` and the first `fires` after 2026-03-02 00:00 UTC.
"""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from horae.core.entry import Entry, Origin, Rule, compiled_rule, cron_rule
from horae.core.project import project
from horae.extras.drift.check import Drift, drift
from horae.extras.drift.claims import ClaimPlace
from horae.org.document import read
from horae.sources.plans.arming import rule_of
from horae.timing.phrases import PhraseError, compile_phrase

START = datetime(2026, 3, 2, tzinfo=UTC) - timedelta(minutes=1)
Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def rule(text: str, zone_name: str = "UTC") -> tuple[Rule, bool]:
    """Return a rule, and whether it has a time of day."""
    if not text.startswith("<"):
        return cron_rule(text, zone_name=zone_name), True
    headline = read(f"* A\nSCHEDULED: {text}\n").headlines[0]
    stamp = headline.scheduled
    return rule_of(headline, zone_name=zone_name), stamp is not None and "T" in stamp.at


def found_in(row: Row) -> list[Drift]:
    zone_name = row.get("zone", "UTC")
    own, has_time = rule(row["rule"], zone_name)
    return drift(row["text"], own, zone_name=zone_name, has_time=has_time)


class SnippetScore(NamedTuple):
    missed: list[Row]
    false: list[Row]
    missed_in_titles: list[Row]
    false_in_titles: list[Row]


def score_snippets(each: Sequence[Row]) -> SnippetScore:
    found = [(row, found_in(row)) for row in each]
    loud = [(row, [one for one in all_ if one.place is not ClaimPlace.BODY]) for row, all_ in found]
    return SnippetScore(
        [row for row, any_ in found if row["drift"] and not any_],
        [row for row, any_ in found if not row["drift"] and any_],
        [row for row, any_ in loud if row["drift"] and row["where"] != "body" and not any_],
        [row for row, any_ in loud if not row["drift"] and any_],
    )


def fires(phrase: str, count: int) -> list[str]:
    own, _ = compiled_rule(compile_phrase(phrase), zone_name="UTC", now=START)
    moments = project(Entry("", Origin("", 0), "", own), START, START + timedelta(days=2500))
    later = (f"{each.at:%Y-%m-%dT%H:%M}" for each in moments)
    return list(islice((at for at in later if at > "2026-03-02T00:00"), count))


class PhraseScore(NamedTuple):
    wrong: list[Row]  # read as something else, or read although it is ambiguous
    refused: list[Row]  # not ambiguous, and not read


def score_phrases(each: Sequence[Row]) -> PhraseScore:
    wrong, refused = [], []
    for row in each:
        try:
            is_right = fires(row["phrase"], len(row["fires"])) == row["fires"]
        except PhraseError:
            refused += [] if row["ambiguous"] else [row]
        else:
            wrong += [] if is_right and not row["ambiguous"] else [row]
    return PhraseScore(wrong, refused)


def main(arguments: Sequence[str]) -> None:
    for name in (each for each in arguments if each != "--list"):
        each = rows(Path(name))
        if "phrase" in each[0]:
            read_, clear = score_phrases(each), sum(not row["ambiguous"] for row in each)
            print(f"{name}: {clear - len(read_.refused)} of {clear} read, {len(read_.wrong)} wrong")
            listed = {"wrong": read_.wrong, "refused": read_.refused}
        else:
            score = score_snippets(each)
            true, honest = (
                [row for row in each if row["drift"] is is_true] for is_true in (True, False)
            )
            titles = [row for row in true if row["where"] != "body"]
            print(
                f"{name}: titles and labels {len(titles) - len(score.missed_in_titles)} of {len(titles)} found,"
                f" {len(score.false_in_titles)} of {len(honest)} false;"
                f" with bodies {len(true) - len(score.missed)} of {len(true)}, {len(score.false)} false"
            )
            listed = {"missed": score.missed, "false": score.false}
        for what, missing in listed.items() if "--list" in arguments else ():
            for row in missing:
                print(what, json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1:])
