"""Schedules in plain words: "weekdays at 9", "every other Friday at 17:30"."""

from horae.timing.phrases.compiler import Compiled, PhraseError, compile_phrase

__all__ = ["Compiled", "PhraseError", "compile_phrase"]
