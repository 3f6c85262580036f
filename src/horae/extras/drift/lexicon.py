"""The sets of words of `words.txt`, each an attribute of this module: `lexicon.VERBS`."""

from __future__ import annotations

import pkgutil
import re


def __getattr__(name: str) -> frozenset[str]:
    if name.isupper() and name not in globals():
        text = (pkgutil.get_data(__package__, "words.txt") or b"").decode()
        sets = re.findall(r"^([A-Z_]+):\n((?:  .+\n)+)", text, re.MULTILINE)
        globals().update({each: frozenset(words.split()) for each, words in sets})
    if name not in globals():
        raise AttributeError(name)
    found: frozenset[str] = globals()[name]
    return found
