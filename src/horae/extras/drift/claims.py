"""Which phrases of a text speak of the entry itself, and not of something else.

That is decided by position and by words of closed classes: prepositions, pronouns, auxiliaries.
What is doubtful says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from horae.timing.phrases.grammar import WORKING, Said, Say, phrases_of
from horae.timing.phrases.tokens import Token, tokens_of


class ClaimPlace(StrEnum):
    TITLE = "title"
    BODY = "body"
    LABEL = "label"  # Frequency: weekly


class Claim(NamedTuple):
    """A phrase that speaks of the entry, and where it stands."""

    start: int
    end: int
    says: tuple[Say, ...]
    place: ClaimPlace
    manner: str  # "name": an adjective; "self": the entry acts; "part": maybe some fires; "said"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PREPOSITIONS: Final = _words(
    "of for from to in into on at by with without over via after before during until till about"
    " against through under between as per using within across around near so because while since"
)
_STOPS: Final = _PREPOSITIONS | _words("and or but then & + , ) ( [ ] : ; | / → . ? ! -") | {""}
_NOT_BEFORE: Final = _words(
    "of for than by before after about since until till due per next last all around roughly"
    " approximately nearly almost least most every each as like versus vs called named from to with"
    " between ~ $ # no the keep"
)
_DOUBT: Final = _words(
    "not never no without instead rather cannot nor neither if when whenever unless may might could"
    " should would maybe perhaps or whether why how what until unlike than except was were had used"
    " formerly previously originally initially moved changed ran since switched ago"
)
_PAST: Final = _words("was were had used formerly previously ran ago")
_BE: Final = _words("is are be gets get will do does has have")
_EMBEDDED: Final = _words(
    "that those which who whose whom where when can must did ensure verify confirm sure"
    " warn alert he she they you i his her their your my someone everyone people"
    " most many some another other others both"
)
_STATES: Final = _words(
    "paid sent made sold held open closed due active valid done written left kept shut built seen"
    " taken given bought available busy free late overdue full"
)
_DETERMINERS: Final = _words("the a an this that these those our its my your his her their")
_SMALL: Final = _DETERMINERS | _PREPOSITIONS | _words("it out off up every all once only") | {""}
_SELF: Final = _words("it this job agent script task run entry workflow command cron trigger")
_MEETS: Final = _words("meet gather talk read discuss")
_THIS: Final = _words("it this is it's a the")
_RUNS: Final = _words(
    "runs run fires fire starts start goes go executes scheduled happens happen occurs occur"
    " repeats repeat recurs recur kicks"
)
_LABELS: Final = _RUNS | _words(
    "frequency cadence schedule interval when repeats repeat recurrence rhythm timing often period"
    " days day time times hours every at periodicity cycle"
)
_OTHER_LABELS: Final = _words(
    "last next previous first latest opening deadline due support office business working"
)
_MEASURES: Final = _words(
    "active average averages rate rates leave users user allowance limit limits quota total totals"
    " wage wages salary budget budgets cost costs dose driver goal goals target targets fee fees"
    " price prices plan plans pass revenue recurring subscription subscriptions payment payments"
    " workers employees staff visitors traffic income spend usage volume high low grind bread"
    " figures statistics stats counts values hours"
)
_PERIODICALS: Final = _words(
    "report reports digest newsletter newsletters backup backups build builds log logs standup"
    " meeting meetings snapshot snapshots menu review summary bulletin brief briefing paper"
    " magazine statement statements invoice invoices timesheet timesheets schedule rota planner"
    " calendar job jobs sync update updates release releases export note notes forecast ad"
    " letter conference call service class market show episode column mail special"
)
# Not read: drawers, blocks, planning, keywords, tables, quotations (whole lines); then links,
# stamps, code, quotations, struck text, addresses, paths, and words glued to a sign.
_LINES: Final = re.compile(  # what is left open goes on to the end, so that nothing is read twice
    r"(?im)^[ \t]*:[\w-]+:[ \t]*\n(?:(?![ \t]*:END:)[^\n]*\n)*(?:[ \t]*:END:)?[^\n]*"
    r"|^[ \t]*#\+begin_[^\n]*\n(?:(?![ \t]*#\+end_)[^\n]*\n)*[^\n]*"
    r"|^[ \t]*```[^\n]*\n(?:(?![ \t]*```)[^\n]*\n)*[^\n]*"
    r"|^[ \t]*(?:(?-i:SCHEDULED|DEADLINE|CLOSED):|#\+|\||>|:\w)[^\n]*"
)
_INLINE: Final = re.compile(
    r"\[\[[^\]\n]{0,300}\](?:\[[^\]\n]{0,300}\])?\]|<[^<>\n]{1,80}>|\[(?:\d{4}-|fn:)[^\]\n]{0,60}\]"
    r"|(?<![\w=])=[^=\n]{1,300}=(?!\w)|(?<![\w~])~[^~\n]{1,300}~(?!\w)|`[^`\n]{1,300}`"
    r"|(?<![\w+])\+[^+\s][^+\n]{0,300}\+(?!\w)|\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”"
    r"|«[^»\n]{0,300}»|„[^“”\n]{0,300}[“”]|(?<!\w)['‘][^'’\n]{1,300}['’](?!\w)"
    r"|(?<!\S)[/~.#$%\\]++[A-Za-z]\S*+|(?<!\S)(?:@|--?)[A-Za-z]\S*+"
    r"|(?<![\w/])\w++(?:://\S*+|(?:/\w++)+\.\w++)|(?<!\w)[^\W\d_]{2,}+\.[^\W\d_]\w*+"
    r"|(?<!\w)[^\W_]*+_\w*+"
)
_TITLE: Final = re.compile(
    r"\A\**[ \t]*(?:[A-Z]{3,}[ \t]+)?(?:\[#\w\][ \t]*)?(?:COMMENT[ \t]+)?|[ \t]*\[[\d/%]*\][ \t]*"
    r"|[ \t]+:[\w@#%:]+:[ \t]*$"
)
_SENTENCE: Final = re.compile(r"(?<![ap]\.m)[.!]\s*$|[^\W\d]{3}[.;!?]\s[A-Z]")
_CUT: Final = re.compile(
    r"(?<![ap]\.m)(?<!\be\.g)(?<!\bi\.e)[.;?!]+(?=[\s)]|$)|\s[-–—]+\s|\n[ \t]*(?=\n)|:+(?=\s)"
    r"|\n[ \t]*(?=(?:[-+*]|\d+[.)])\s|[A-Z]\w* ?:)|\f"
)
# A labelled value ends with its line.
_LABELLED: Final = re.compile(r"(?m)^([ \t]*(?:[-+*] )?[A-Z]\w*(?: \w+)? ?:[ \t][^\n]*)\n")
_BULLET: Final = re.compile(r"[\s>#]*(?:[-+*]|\d+[.)])?\s*(?:\[[ Xx-]\]\s*)?")
_OLDER: Final = re.compile(
    r"\b\w+er than \w+ (?:\w+ )?(?:second|minute|hour|day|week|month|year)s?\b|\b(?:more|less) than"
    r" \w+ (?:second|minute|hour|day|week|month|year)s?(?: (?:old|late))?\b"
)
_ZONE: Final = re.compile(
    r"\s*\(?((?:UTC|GMT)(?:[+-]\d{1,2})?|[A-Z]{1,3}[SDE]?T|[A-Z][a-z]+/[A-Z]\w+|Z)\b"
    r"|\s*\(?(?:[Ll]ocal|[Ss]erver|[A-Z][a-z]+)(?=\s+time\b)|\s*\(?(?:Pacific|Eastern)\b"
)
_UTC: Final = frozenset({"UTC", "GMT", "Z", "Etc/UTC"})


class _Clause(NamedTuple):
    """A stretch of text between two stops."""

    tokens: list[Token]
    low: list[str]
    place: ClaimPlace
    end: str  # the sign that ends it
    noun: str  # the last noun of the title, which is what the entry is
    stems: frozenset[str]  # how the longer words of the title begin
    is_other: bool = False  # the value of a label that names something else: `Deadline: Friday`


class _Phrase(NamedTuple):
    """A phrase in its clause, with the words around it."""

    clause: _Clause
    first: int
    symbols: str
    left: list[str]
    before: str
    after: str
    rest: list[str]  # what follows
    says: tuple[Say, ...]

    @property
    def is_often(self) -> bool:
        """Whether it is a frequency word alone: daily, twice-weekly."""
        return self.symbols.endswith("Q") and len(self.symbols) <= 2

    @property
    def is_time(self) -> bool:
        """Whether it says a time of day only."""
        return not any(s.recurs or s.has_days or s.once or s.months or s.minutes for s in self.says)


def claims(text: str, *, zone_name: str = "UTC") -> list[Claim]:
    """Return what a text says about its own schedule, in order.

    >>> [text[c.start:c.end] for text in ["Digest daily at 6"] for c in claims(text)]
    ['daily at 6']
    >>> claims("Archive the daily logs")
    []
    """
    plain = _LINES.sub(lambda m: re.sub(r"\S", " ", m[0]), text)
    plain = _INLINE.sub(lambda m: "ж" * len(m[0]), plain)  # one word, whatever it was
    first = plain.find("\n") if "\n" in plain else len(plain)
    title = _TITLE.sub(lambda m: " " * len(m[0]), plain[:first])
    is_sentence = _SENTENCE.search(title) is not None
    nouns = re.match(
        r"(?:(?!(?:of|for|from|to|in|on|at|by|with)\b)[\w'-]+ ?)*", title.lower().strip()
    )
    noun = "" if is_sentence or not nouns else nouns[0].strip().rpartition(" ")[2]
    place = ClaimPlace.BODY if is_sentence else ClaimPlace.TITLE
    stems = frozenset(re.findall(r"\b[a-z]{5}", title.lower()))
    body = _LABELLED.sub("\\1\f", plain[first:])
    clauses = [
        *_clauses(title, 0, place, noun, stems),
        *_clauses(body, first, ClaimPlace.BODY, noun, stems),
    ]
    found = (
        _claim(plain, each, said, zone_name) for each in clauses for said in phrases_of(each.tokens)
    )
    return [claim for claim in found if claim is not None]


def _clauses(
    text: str, offset: int, place: ClaimPlace, noun: str, stems: frozenset[str]
) -> Iterator[_Clause]:
    at, label = 0, frozenset[str]()
    cuts = [(m.start(), m.end(), m[0].strip()) for m in _CUT.finditer(text)]
    for start, end, sign in [*cuts, (len(text), len(text), "")]:
        bullet = _BULLET.match(text, at, start)
        begin = bullet.end() if bullet else at
        move = offset + begin
        tokens = [
            token._replace(start=token.start + move, end=token.end + move)
            for token in tokens_of(text[begin:start], prose=True)
        ]
        low = [token.text.lower() for token in tokens]
        if tokens and len(tokens) <= 400:
            is_label = bool(label & _LABELS) and not label & _OTHER_LABELS
            if is_label and (head := _implied(tokens, label)):
                tokens, low = [*head, *tokens], ["every", *low]
            is_other = bool(label) and not label & (_SELF | _LABELS | {noun, "note"})
            kind = ClaimPlace.LABEL if is_label else place
            yield _Clause(tokens, low, kind, sign, noun, stems, is_other=is_other)
        label = frozenset(low) if sign.startswith(":") and len(low) < 4 else frozenset()
        at = end


def _implied(tokens: Sequence[Token], label: frozenset[str]) -> list[Token]:
    """Return the word that a label stands for: `Interval: 2 weeks`, `Repeats: no`."""
    symbols, start = "".join(token.symbol for token in tokens), tokens[0].start
    if re.fullmatch("N?U", symbols):
        return [Token("e", None, start, start, "every")]
    is_no = len(tokens) == 1 and tokens[0].text.lower() in ("no", "never")
    is_no = is_no and not label.isdisjoint({"repeat", "repeats", "recurs", "recurring"})
    return [Token("1", None, start, tokens[0].end, "once")] if is_no else []


def _claim(text: str, clause: _Clause, said: Said, zone_name: str) -> Claim | None:
    tokens, low, first, last = clause.tokens, clause.low, said.first, said.last
    start, end = tokens[first].start, tokens[last - 1].end
    is_whole = last - first == len(tokens) and (
        clause.end[:1] in (":", "-", "–", "—") or clause.place is ClaimPlace.LABEL
    )
    says = tuple(say for say in said.says if _is_clear(say, is_whole=is_whole))
    while last < len(low) and low[last] in ("only", "sharp", "exactly", "precisely", "now"):
        last += 1
    if zone := _ZONE.match(text, end):
        end = zone.end(1) if zone[1] else end
        if zone[1] != zone_name and not {zone[1], zone_name} <= _UTC:
            no_time = {"times": frozenset(), "windows": (), "part": "", "seconds": frozenset()}
            says = tuple(replace(say, **no_time) for say in says if say.recurs)  # type: ignore[arg-type]
        while last < len(low) and (tokens[last].start < zone.end() or low[last] in ("time", ")")):
            last += 1
    if not says:
        return None
    symbols = "".join(token.symbol for token in tokens[first : said.last])
    left, rest = _plain(low[:first]), low[last:]
    around = left[-1] if left else "", rest[0] if rest else ""
    phrase = _Phrase(clause, first, symbols, left, *around, rest, says)
    manner = _manner(phrase)
    return Claim(start, end, says, clause.place, manner) if manner else None


def _plain(left: list[str]) -> list[str]:
    """Return the words before a phrase without those that only stress it: please, must run."""
    modal = ("must", "should", "will", "shall")
    found = [word for word, then in pairwise([*left, ""]) if word not in modal or then not in _RUNS]
    return _OLDER.sub("", " ".join(found)).split()


def _is_clear(say: Say, *, is_whole: bool) -> bool:
    """Whether a statement says something for sure; a single day may be meant only once."""
    is_open = (say.asks and not say.either) or (say.weekdays and not (say.recurs or is_whole))
    is_vague = any(day == WORKING and abs(n) > 1 for n, day in say.nth)  # which cron cannot say
    told = say.once, say.recurs, say.has_days, say.times, say.minutes, say.months
    return not (is_open or is_vague) and (any(told) or bool(is_whole and say.windows))


def _manner(phrase: _Phrase) -> str:
    """Return how a phrase speaks of the entry; empty if it does not."""
    clause, left, before, after = phrase.clause, phrase.left, phrase.before, phrase.after
    is_title = clause.place is ClaimPlace.TITLE
    if clause.place is ClaimPlace.LABEL:
        return "" if left else "said"
    is_scheduled = before == "for" and left[-2:-1] == ["scheduled"]
    is_bound = before in _NOT_BEFORE and not is_scheduled
    if is_bound or before.isdigit() or _is_doubted(phrase):
        return ""
    if not left:
        return "" if clause.is_other and not is_title else _opens(phrase, is_title=is_title)
    if phrase.is_often and after in _SELF | {"thing"} and set(left) <= _THIS:
        return "self"
    if after not in _STOPS and not any(say.once for say in phrase.says):
        return ""
    if not is_title:
        left = _last_part(left)
    subject = "said" if is_title else _subject(left, clause)
    words = set(left[1:] if subject == "self" else left)
    if not subject or words & _EMBEDDED or (subject == "said" and words & _BE):
        return ""
    is_state = before in _STATES or re.search(r"[^e]ed$", before) is not None
    is_apart = left[-2:-1] == [","]  # `Ferry times, fetched hourly`
    is_state = len(left) > 1 and is_state and not (is_scheduled or is_apart)
    is_apposed = not is_title and before == "," and {"for", "about", "of"} & set(left)
    if is_apposed or (subject == "said" and is_state):  # `Needed for the meeting, Mondays at 10`
        return ""
    if phrase.is_time and before not in _RUNS:
        recent = set(" ".join(left).rpartition(",")[2].split())
        is_other = recent & {"for", "about", "before", "after", "until", "with"}
        symbols = set(phrase.symbols)
        is_number = symbols <= set("@N&,") and phrase.symbols.count("N") < 2
        is_bare = is_number or symbols <= set("mU&,")
        return "" if is_bare or is_other or after or len(left) < 2 else subject
    is_object = len(left) == 1 or left[1] in ("up", "in", "out")
    if is_title and is_object and after not in ("", ",", "at", "on", ")"):
        return ""
    is_near = phrase.symbols[0] in "oiWPS" and before not in (",", "(")
    is_topic = is_near and ("about" in words or (left[0] == "remind" and "to" in left))
    is_prepared = left[0] in ("prepare", "book", "plan") and "for" in left
    return "" if is_topic or is_prepared or words & {"before", "after"} else subject


def _is_doubted(phrase: _Phrase) -> bool:
    """Whether the words around say that it is not so, was so, or may be so."""
    clause, left, after = phrase.clause, phrase.left, phrase.after
    if after in ("or", "if", "unless", "when", "rather", "instead", "vs", "versus", "->"):
        return True
    if _DOUBT & set(left) or (clause.place is ClaimPlace.BODY and _PAST & set(clause.low)):
        return True
    near = "".join(t.symbol for t in clause.tokens[max(0, phrase.first - 2) : phrase.first])
    last = len(clause.low) - len(phrase.rest)
    near += "".join(t.symbol for t in clause.tokens[last : last + 3])
    return phrase.is_often and "Q" in near


def _opens(phrase: _Phrase, *, is_title: bool) -> str:
    """Judge a phrase that opens its clause: `Daily backup of …`, `Every Monday: …`."""
    after, rest, symbols, clause = phrase.after, phrase.rest, phrase.symbols, phrase.clause
    is_comma = after == ","
    if not is_title and " ".join(rest) in ("is enough", "is fine", "is plenty", "will do"):
        return "said"
    is_other = _is_other(rest[is_comma:], clause, is_title=is_title)
    if after in _BE | _EMBEDDED | {"of", "->"} or is_other:
        return ""
    if after in _STOPS:
        is_thing = (after == "in" and symbols[0] in "WPSs") or (
            after in ("to", "as", "in", "-") and phrase.is_often
        )
        is_time = phrase.is_time and not is_title
        is_heading = not is_title and clause.end.startswith(":")
        is_part = not is_title and is_comma and symbols[0] == "o"
        return "" if is_thing or is_time or is_heading else "part" if is_part else "said"
    if phrase.is_often or (symbols[0] == "Q" and "Q" not in symbols[1:]):
        is_own = after in _SELF and ([*rest, "", ""][1] in _STOPS or rest[1] == "that")
        return _names(phrase) if is_title else "self" if is_own else ""
    if not is_title and symbols[0] == "o" and after == "it":
        return "part"
    if (
        after in ("we", "it", "this")
        or (after in _DETERMINERS and not is_title)
        or clause.low[0].endswith("-only")
        or any(say.once for say in phrase.says)
    ):
        return "said"
    is_row = symbols.count("W") > 1
    is_plural = re.search(r"[^s]s$", after)  # a subject of its own, or its verb
    is_passive = _BE & set(rest[1:3]) and after not in _DETERMINERS
    is_rhythm = is_title and (re.search("[ec]", symbols) or is_row)
    return "said" if is_rhythm and not (is_plural or is_passive) else ""


def _names(phrase: _Phrase) -> str:
    """Judge a frequency word before a noun."""
    tokens = phrase.clause.tokens[len(phrase.clause.low) - len(phrase.rest) :]
    size = next(
        (n for n, t in enumerate(tokens) if t.text.lower() in _STOPS or t.symbol not in ".UqRpK2"),
        len(tokens),
    )
    words = [token.text.lower() for token in tokens[:size]]
    if not 0 < size < 4 or {words[0], words[-1]} & _MEASURES or _PERIODICALS & set(words[:-1]):
        return ""
    is_topic = phrase.clause.end == ":" and words[-1] in _PERIODICALS
    is_quoted = any(word[0] == "ж" for word in words)
    if is_topic or is_quoted or words[0].endswith(("'s", "s'", "’s")):
        return ""
    longer = [t.text for t in phrase.clause.tokens if len(t.text) > 3 and t.text[0].isalpha()]
    is_cased = len(longer) > 2 and all(text[0].isupper() for text in longer)
    is_name = tokens[0].text[0].isupper() and not tokens[0].text.isupper()
    return "" if is_name and not is_cased else "name"


def _is_other(rest: Sequence[str], clause: _Clause, *, is_title: bool) -> bool:
    """Whether what follows a phrase has a subject of its own: `the shop closes early`."""
    opener, follower = [*rest[:2], "", ""][:2]
    is_passive = any(
        one in ("is", "are", "gets") and other.endswith(("ed", "n", "t")) and other not in _STATES
        for one, other in pairwise(rest)
    )
    is_self = opener == "this" or follower in _SELF | {clause.noun} or (is_title and is_passive)
    return opener in _DETERMINERS and not is_self


def _last_part(left: Sequence[str]) -> list[str]:
    """Return what follows the last comma if the entry acts in it: `…, so we run it`."""
    at = max((at for at, word in enumerate(left) if word == ","), default=-1)
    part = [*left[at + 1 :]]
    if part and part[0] in ("so", "and", "then", "but", "therefore", "hence", "thus"):
        part = part[1:]
    return part if part and part[0] in ("it", "we", "this", "it's") else [*left]


def _subject(left: Sequence[str], clause: _Clause) -> str:
    """Return "self" if the entry acts in a clause, "said" if it begins with a verb, or nothing."""
    opener, follower = left[0], left[1] if len(left) > 1 else ""
    if opener in ("it", "we", "it's") or (opener == "this" and follower in _BE | _RUNS | {"one"}):
        is_met = list(left[:3]) == ["we", "look", "at"]
        is_met |= opener == "we" and not _MEETS.isdisjoint(left)
        is_state = follower == "is" and left[2:3] and left[2] in _STATES - {"done"}
        return "" if is_met or is_state else "self"
    if opener in ("i", "we") and follower in ("want", "need") and left[2:3] in (["it"], ["this"]):
        return "self"
    if opener in ("the", "our", "this"):
        is_own = left[1][:5] in clause.stems and _RUNS & set(left[2:]) if left[1:] else False
        return "self" if is_own or {*left[1:3]} & (_SELF | {clause.noun}) - {""} else ""
    is_verb = opener not in _SMALL | _EMBEDDED | _BE and opener.isalpha() and follower in _SMALL
    is_verb = is_verb and not opener.endswith("ly")
    is_begun = clause.tokens[0].text[:1].isupper() or clause.low[0] == "will"
    return "said" if is_verb and is_begun else ""
