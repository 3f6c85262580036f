"""The sets of words of `words.txt`, each an attribute of this module: `lexicon.VERBS`."""

from __future__ import annotations

import re
from pathlib import Path


def __getattr__(name: str) -> frozenset[str]:
    if name.isupper() and name not in globals():
        text = Path(__file__).with_name("words.txt").read_text(encoding="utf-8")
        sets = re.findall(r"^([A-Z_]+):\n((?:  .+\n)+)", text, re.MULTILINE)
        globals().update({each: frozenset(words.split()) for each, words in sets})
    if name not in globals():
        raise AttributeError(name)
    found: frozenset[str] = globals()[name]
    return found
