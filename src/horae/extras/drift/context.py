"""Context: whether a phrase claims anything about this very schedule."""

from __future__ import annotations

from enum import StrEnum
from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.extras.drift import lexicon, phrase
from horae.extras.drift.phrase import FREQUENCIES, MASK, Manner, Often, Period, Sentence

if TYPE_CHECKING:
    from collections.abc import Iterator


# A rhythm so slow that a thing is more often named for it than done in it.
_RARE: Final = frozenset({Often(3, Period.MONTH), Often(6, Period.MONTH), Often(1, Period.YEAR)})


class PhrasePlace(NamedTuple):
    """A phrase in its sentence, with the words around it."""

    sentence: Sentence
    start: int
    end: int
    kind: Manner
    when: phrase.SpokenTime
    left: list[str]  # the words before it
    before: str  # the last of them
    after: str  # the word that follows
    is_second: bool  # the sentence has begun with another

    @property
    def is_free(self) -> bool:
        """Whether no noun follows to which the phrase could belong."""
        return self.after in lexicon.FOLLOWING or self.after == MASK or not self.after[:1].isalnum()

    @property
    def is_row(self) -> bool:
        opener = self.sentence.low(self.start)
        return len(self.when.weekdays) > 1 and not opener.startswith(("on", "w", "business"))

    @property
    def is_bare_hour(self) -> bool:
        words = self.sentence.words[self.start + 1 : self.end]
        return self.kind is Manner.TIME and all(word.low.isdecimal() for word in words)


class ClaimManner(StrEnum):
    SAID = "said"  # a statement
    NAME = "name"  # the adjective of a thing, which may be no more than its name


def heard_in(sentence: Sentence) -> Iterator[phrase.TimeClaim]:
    index = first = opening = _opening(sentence)
    while index < len(sentence.words):
        found = phrase.phrase_at(sentence, index)
        if found is None:
            index += 1
            continue
        manner = None
        if found.when:
            left = [word.low for word in sentence.words[first:index]]
            before, after = left[-1] if left else "", sentence.low(found.end)
            at = (sentence, index, found.end, found.kind, found.when, left, before, after)
            manner = _manner(PhrasePlace(*at, is_second=first > opening))
        if manner and found.when:
            begin, end = sentence.words[index].start, sentence.words[found.end - 1].end
            is_name = manner is ClaimManner.NAME
            yield phrase.TimeClaim(begin, end, found.when, sentence.start, is_name)
            if index == first:
                # What follows "Every Monday," is a sentence of its own.
                first = found.end + (sentence.low(found.end) in (",", ":"))
        index = found.end


def _opening(sentence: Sentence) -> int:
    """Return where a sentence begins behind its stars, marks, state, cookie and fillers."""
    for index, word in enumerate(sentence.words):
        is_mark = not word.low[0].isalnum() and word.low not in ("(", "@")
        if not is_mark and word.text not in lexicon.STATES and word.low not in lexicon.FILLERS:
            return index
    return len(sentence.words)


def _manner(place: PhrasePlace) -> ClaimManner | None:
    left = place.left
    if ":" in left:
        cut = len(left) - left[::-1].index(":")
        is_label = cut > 1 and left[cut - 2] in lexicon.LABELS
        if not is_label and (not place.sentence.is_title or _is_blocked(left[:cut])):
            return None
        left = left[cut:]
    is_arrow = place.after in ("-", "=") and place.sentence.low(place.end + 1) == ">"
    is_hedged = is_arrow or place.after in lexicon.HEDGES or place.before in ("or", "nor")
    if place.sentence.is_question or is_hedged or _is_blocked(left):
        return None
    # The marks and fillers they begin with say nothing.
    left = list(dropwhile(_is_mute, left))
    if place.kind is Manner.ADVERB:
        return _manner_of_adverb(place, left)
    if not left:
        return ClaimManner.SAID if _leads(place) else None
    is_said = place.is_free and _may_follow(place, left) and _is_own(place, left)
    return ClaimManner.SAID if is_said else None


def _is_mute(low: str) -> bool:
    return low in lexicon.FILLERS or not (low[0].isalnum() or low == MASK)


def _is_blocked(left: list[str]) -> bool:
    owners = (low for low in left if low not in ("it's", "let's"))
    is_owned = any(low.endswith(("n't", "'s", "s'")) for low in owners)
    return is_owned or not lexicon.BLOCKERS.isdisjoint(left)


def _leads(place: PhrasePlace) -> bool:
    """Whether a phrase that opens a sentence says when, rather than being its subject."""
    sentence, end = place.sentence, place.end
    if place.after == "of" or place.after in lexicon.AUXILIARIES:
        return False
    if place.kind is Manner.DAYS and place.after == "in":
        return False
    is_lone = place.is_bare_hour or (place.kind is Manner.DAYS and end - place.start == 1)
    if is_lone and not sentence.is_title:
        return False
    if not place.is_free and place.kind is not Manner.EVERY:
        # "Mon/Wed/Fri gym", but not "Monday to Friday working hours".
        is_compact = place.is_row and end - place.start == 1
        return is_compact or place.after in lexicon.VERBS
    return _is_own_clause(sentence, end + (place.after == ","))


def _is_own_clause(sentence: Sentence, index: int) -> bool:
    """Whether what follows `Every Monday` is done here: `send it`, but not `the shop closes`."""
    rest = [word.low for word in sentence.words[index : index + 8]] or [""]
    opener, follower = rest[0], rest[1] if len(rest) > 1 else ""
    is_self = opener == "we" or opener in lexicon.SELF or follower in lexicon.SELF
    if is_self or not opener[:1].isalnum():
        return True
    if opener in lexicon.FOLLOWING and opener not in lexicon.DETERMINERS | lexicon.STRANGERS:
        return True
    if _is_verb(opener) and follower not in lexicon.AUXILIARIES:
        return True
    # "Every Friday deploy is announced" has the phrase in its subject.
    is_apart = opener in lexicon.DETERMINERS or "are" in rest or sentence.low(index - 1) == ","
    if is_apart and any(_is_passive(low, before) for before, low in pairwise(rest)):
        return True
    is_clause = opener in lexicon.DETERMINERS | lexicon.STRANGERS
    is_clause = is_clause or not lexicon.AUXILIARIES.isdisjoint(rest[:4])
    return sentence.is_title and not is_clause


def _is_passive(low: str, before: str) -> bool:
    if before not in ("is", "are", "be", "gets", "get") or low in lexicon.QUALITIES:
        return False
    stems = low.removesuffix("ed"), low.removesuffix("d")
    return low in lexicon.DONE or any(stem in lexicon.VERBS for stem in stems)


def _may_follow(place: PhrasePlace, left: list[str]) -> bool:
    before = place.before
    if (
        before in lexicon.QUALITIES
        or before in ("every", "each", "than")
        or phrase.number_of(before)
    ):
        return False
    match place.kind:
        case Manner.EVERY:
            is_object = left[0] in lexicon.SUMMING and left[1:] in ([], ["up"], ["in"])
            return before not in lexicon.NOT_BEFORE_EVERY and not is_object
        case Manner.TIME:
            if before in lexicon.NOT_BEFORE_TIME or any(c.isdigit() for c in before):
                return False
            # A bare number is a time of every day, unless it is a level, or one day's.
            if not place.is_bare_hour or place.is_second or before in lexicon.RUNNING:
                return True
            return place.sentence.is_title and left[0] not in lexicon.LEVELLING
        case _ if place.sentence.low(place.start) == "on":
            return before not in lexicon.NOT_BEFORE_TIME | {"and", "or", "except"}
        case Manner.DATE:
            return not before[0].isalnum()
        case _:
            return _may_follow_bare(place, left)


def _may_follow_bare(place: PhrasePlace, left: list[str]) -> bool:
    """Whether days without `on` say when: `runs weekdays`, but not `Taco Tuesdays`."""
    before = place.before
    if before in lexicon.NOT_BEFORE_ADVERB:
        return False
    if place.when.times or before in lexicon.RUNNING:
        return True
    if not place.sentence.is_title:
        return False
    if not before[0].isalnum():
        return True
    is_set = place.sentence.low(place.start)[0] in "wb"
    return (is_set or place.is_row) and not (len(left) == 1 and _is_verb(before))


def _manner_of_adverb(place: PhrasePlace, left: list[str]) -> ClaimManner | None:
    sentence, before = place.sentence, place.before
    is_listed = place.after in ("and", "&", ",", "/") and sentence.low(place.end + 1) in FREQUENCIES
    if is_listed or before in ("and", "&", "/"):
        return None
    if not place.is_free:
        return _manner_of_adjective(place, left)
    if not left:
        is_heading = place.after == ":" and not sentence.is_title
        return None if is_heading or place.after == "to" else ClaimManner.SAID
    if before in lexicon.NOT_BEFORE_ADVERB | lexicon.QUALITIES | {"."} or before in FREQUENCIES:
        return None
    # In a body an aside or a capital belongs to the noun before: "John Daily".
    is_capital = sentence.words[place.start].text[0].isupper()
    if not sentence.is_title and (is_capital or before == "("):
        return None
    return ClaimManner.SAID if _is_own(place, left) else None


def _manner_of_adjective(place: PhrasePlace, left: list[str]) -> ClaimManner | None:
    words = [word.low for word in place.sentence.words[place.end : place.end + 5]]
    other = lexicon.FOLLOWING | {"of"}
    nouns = list(takewhile(lambda low: low[0].isalnum() and low not in other, words))
    if not nouns or not _is_named_for(place, nouns):
        return None
    rest = (place.sentence.low(place.end + len(nouns) + step) for step in range(2))
    if any(low in lexicon.AUXILIARIES for low in rest):
        return None
    if not left:
        return ClaimManner.NAME
    if " ".join(left) in ("a", "an", "this is a", "this is an", "it is a", "it's a"):
        return ClaimManner.SAID
    is_object = left[0] in lexicon.SENDING and left[1:] in ([], ["the"], ["our"], ["a"])
    return ClaimManner.NAME if is_object and nouns[-1] in lexicon.ACTIVITIES else None


def _is_named_for(place: PhrasePlace, nouns: list[str]) -> bool:
    """Whether the adjective before some nouns tells when this happens."""
    *others, head = nouns
    if len(nouns) > 3 or not all(noun.replace("-", "").isalpha() for noun in nouns):
        return False
    if head in lexicon.MEASURES or nouns[0] in lexicon.MEASURES:
        return False
    if any(noun in lexicon.PERIODICALS for noun in others) and head not in lexicon.MAKING:
        return False
    if others and head in lexicon.ABOUT_OTHERS:
        return False
    is_slow = place.when.every in _RARE
    if head not in lexicon.ACTIVITIES and (
        is_slow or not (_is_verb(head) or head.endswith(("tion", "sion")))
    ):
        return False
    # "Daily Planet clippings": a capital that its neighbours do not have makes a name.
    words = [word.text for word in place.sentence.words[place.end : place.end + len(nouns)]]
    return not (words[0][0].isupper() and any(word[0].islower() for word in words))


def _is_verb(low: str) -> bool:
    if low in lexicon.VERBS or (low.endswith("ing") and len(low) > 5):
        return True
    stems = (low.removesuffix("s"), low.removesuffix("es"), low.removesuffix("ies") + "y")
    return low.endswith("s") and any(stem in lexicon.VERBS for stem in stems)


def _is_own(place: PhrasePlace, left: list[str]) -> bool:
    if _is_about_event(place, left):
        return False
    opener, subject = left[0], left[1] if len(left) > 1 else ""
    if opener == "this":
        known = lexicon.SELF | lexicon.ACTIVITIES | lexicon.AUXILIARIES
        is_this = subject in known or _is_verb(subject)
    else:
        is_this = opener in ("the", "our", "my") and subject in lexicon.SELF
    if opener in lexicon.SELF or is_this:
        return _is_run(left) or not any(low in ("is", "are", "be") for low in left)
    if _is_verb(opener) or opener in lexicon.DONE:
        return _is_order(left) or (opener.endswith("s") and _is_run(left))
    if any(low in lexicon.STRANGERS for low in left):
        return False
    if place.sentence.is_title and opener not in lexicon.DETERMINERS:
        return place.kind is not Manner.TIME and _is_title(left)
    # "School starts at 8:15" is an hour of others, "The digest runs at 8:15" is not.
    is_event = place.kind is Manner.TIME and left[-1] in lexicon.BEGINNING
    return _is_run(left) and opener != "my" and not place.is_bare_hour and not is_event


def _is_about_event(place: PhrasePlace, left: list[str]) -> bool:
    """Whether the words say when something is that this only leads up to."""
    if any(low in lexicon.REMINDING for low in left):
        is_clear = left[0] in lexicon.REMINDING or place.before == "reminder"
        return not is_clear or any(low in ("to", "about", "of", "for", ":") for low in left)
    if left[0] in lexicon.PLANNING and place.kind is not Manner.EVERY:
        return True
    if any(low in ("before", "after", "ahead", "by") for low in left):
        return True
    if "for" in left:
        return any(low in lexicon.EVENTS for low in left[left.index("for") :])
    return place.kind is Manner.TIME and place.before in lexicon.EVENTS


def _is_run(left: list[str]) -> bool:
    """Whether words end in a verb that says that something happens: `goes out`, `is sent`."""
    tail = [low for low in left[-4:] if low not in lexicon.FILLERS]
    if any(low in lexicon.RUNNING for low in tail[-2:]):
        return True
    forms = ("is", "are", "gets", "get")
    return any(low in lexicon.DONE and before in forms for before, low in pairwise(tail))


def _is_order(left: list[str]) -> bool:
    """Whether what follows a verb is its object, and not a statement about something else."""
    last = left[-1]
    if any(low in lexicon.STRANGERS or low == "we" for low in left[1:]):
        return False
    is_past = last.endswith("ed") and not last.endswith("eed")
    is_participle = len(left) > 1 and (is_past or last in lexicon.PARTICIPLES)
    return not is_participle and not any(low in lexicon.FINITE for low in left[1:])


def _is_title(left: list[str]) -> bool:
    """Whether a headline without a verb can be followed by when it happens."""
    *others, last = left
    if _is_run(left):
        return True
    if any(low in lexicon.FINITE for low in left) or (
        last in lexicon.PARTICIPLES and last not in lexicon.DONE
    ):
        return False
    # "Tokens expire" and "The agency updates its data" have a subject and a verb.
    is_clause = bool(others) and others[-1].endswith("s") and last in lexicon.VERBS
    has_verb = any(low not in lexicon.VERBS and _is_verb(low) for low in others[1:])
    return not is_clause and not has_verb
