"""Which phrases of a text speak of the entry itself, and not of something else.

That is decided by position and by words of closed classes: prepositions, pronouns, auxiliaries.
A clause is written with a mark for the phrase ("runs «E» from the spare machine"); the first of the
rules that matches it decides. What no rule knows says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from horae.timing.phrases.grammar import WORKING, Said, Say, phrases_of
from horae.timing.phrases.tokens import STRESS, Token, tokens_of


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
    manner: str  # "name": an adjective; "self": the entry acts;
    # "single" ("apart" after a comma): a weekday with a time, maybe another's; "said": any other


_CLASSES: Final = {
    "PREP": "of|for|from|to|into|in|on|at|by|with|without|over|via|after|before|during|until|till"
    "|about|against|through|under|between|as|per|using|within|across|around|near|so|because|while"
    "|since",
    "DET": "the|a|an|this|that|these|those|our|its|my|your|his|her|their",
    "BE": "is|are|be|gets?|will|has|have",
    "RUN": "(?:take|i)s (?:place|held)|runs?|fires?|starts?|goes|go|executes?|scheduled"
    "|happens?|occurs?|repeats?|recurs?|kicks|triggers?",
    "JOB": "job|agent|script|task|run|entry|workflow|command|cron|trigger|timer|thing|reminder"
    "|alarm|prompt|nudge",
    "SELF": "ø|<JOB>",
    "EMB": "that|those|which|who|whose|whom|where|when|can|must|did|ensure|verify|confirm|sure|warn"
    "|alert|he|she|they|you|i|his|her|their|your|my|someone|everyone|people|most|many|some|itself"
    "|another|other|others|both|half|several|few|nothing|nobody|none",
    "BOUND": r"of|for|than|by|before|after|about|since|until|(?<!the )till|due|per|next|last|all"
    r"|around|roughly|approximately|nearly|almost|least|most|every|each|as|like|versus|vs"
    r"|named|from|to|with|between|no|the|keep|[~$#]",
    "PAST": "was|were|had|used|formerly|previously|ran|ago",
    "DOUBT": "not|never|no|without|instead|rather|cannot|n?either|nor|if|when|whenever|unless|may"
    r"|might|could|should|would|maybe|perhaps|or|whether|why|how|what|until|unlike|than|except"
    "|originally|initially|moved|changed|switched|since|<PAST>",
    "ADJ": "open|closed|due|active|valid|available|busy|free|late|overdue|full|held|kept|shut",
    "STATE": "<ADJ>|paid|sent|made|sold|written|left|built|seen|taken|given|bought|drawn|grown"
    "|shown|broken|chosen|stolen|frozen|hidden|found|lent|spent|met|led|fed|won|stuck|lost|told"
    "|laid|cast|born",
    "MEASURE": "active|averages?|rates?|leave|users?|allowance|limits?|quota|totals?|wages?|salary"
    "|budgets?|costs?|dose|driver|goals?|targets?|fees?|prices?|plans?|pass|revenue|recurring"
    "|subscriptions?|payments?|workers|employees|staff|visitors|traffic|income|spend|usage|volume"
    "|high|low|grind|bread|figures|statistics|stats|counts|values|hours",
    "PERIODICAL": "reports?|digest|newsletters?|backups?|builds?|logs?|standup|meetings?|menu"
    "|snapshots?|review|summary|bulletin|brief|briefing|paper|magazine|statements?|invoices?"
    "|timesheets?|schedule|rota|planner|calendar|jobs?|sync|updates?|releases?|exports?|notes?"
    "|forecast|ad|letter|conference|call|service|class|market|show|episode|column|mail|special",
    "STOP": r"(?= (?:<PREP>|and|or|but|then|once)\b| [^\w\s«]|$)",
    "ANY": "«[^»]*»",
    "MADE": "generated|created|produced|(?:re)?built|sent|mailed|posted|run|started|triggered"
    "|scheduled|executed|called|launched|refreshed|updated|done|taken",
    "VERB": r"\w+[^\Ws]s",
    "IDLE": r"(?!(?:.* )?(?:<RUN>)(?: off| up| out)? «)",
    "OURS": "(?!.* (?:<EMB>) .*«)",
    "NOUN": r"[\w'-]+",
    "SMALL": "<DET>|<PREP>|it|them|him|us|me|out|off|up|back|round|every|all|once|only|everything",
    "PRE": r"(?:… )?(?:[^«]*, )?(?:(?:so|and|then|but|therefore|hence|thus) )?",
    "STAYS": "departs|opens|closes|ends|leaves|lasts|takes|costs|saves|covers|expires|arrives"
    "|meets",
    "SUBJECT": "(?:i|it|this)(?:'ll| will)? (?:ping|nudge|remind|tell|mail|prompt|warn)s? you"
    "|(?:i|you)(?:'ll| will)? (?:get|be|am|are) (?:reminded|pinged|nudged|prompted|told)"
    "|it|it's|we(?! (?:get through|have|need|use)\\b)|(?:i|you)(?:'\\w+)? (?:\\S+ )+?(?:it|this)"
    "|this (?:one|(?:<NOUN> ){0,2}<ACTS>)"
    "|(?:(?:the|our|this|an?) <KIND>)?(?:<JOB>)|(?:the|our|this|an?) <KIND>ø"
    "|(?:the|our|this) đ (?:.* )?(?:<RUN>|(?:is|are|gets?) (?:<MADE>))"
    "|(?:\\S+ ){1,3}(?:is|are|gets?) đ"
    "|(?:the|our|this) (?:<NOUN> )?(?:<PERIODICAL>) (?:(?:is|are|gets?) (?:<MADE>)|goes out|leaves)"
    "|(?:the|our) (?:<NOUN> ){1,2}(?:is|gets) (?:run|started|triggered|executed|done|performed)",
    "KIND": r"(?:(?!(?:<EMB>)\b|\S*['’])\S+ )?",
    "ACTS": r"(?:\w+ly |always )?(?:<BE>|<RUN>|(?!<STAYS>)<VERB>)",
}
# Where (title, body, label), what the clause looks like, and its manner.
_RULES: Final = (
    ("l", "«", "said"),
    # Bound to a word before it, one of several, in doubt, or over.
    ("tb", r"(?!.*\b(?:scheduled for|set (?:to|for)) «)(?:.* )?(?:<BOUND>) «", ""),
    ("tb", r".*«[^»]*X|(?:.* )?\d+ (?:<Q>|<T>)", ""),
    ("tb", r".*» (?:or|if|unless|rather|instead|vs|versus|->|in (?:\w+er|spring|autumn))\b", ""),
    ("tb", r"(?:.* )?(?:<DOUBT>|\w+n't) (?:.* )?«", ""),
    ("b", r"(?:.* )?(?:<PAST>)\b", ""),
    ("b", r"(?:.* )?by (?:this|(?:<DET>) (?:<SELF>))\b<OURS>", "self"),
    ("b", r"(?:.* )?by (?:<DET>)\b|(?:needed|wanted|required|used) (?:for|by|in|at)\b", ""),
    ("b", r"(?:\w+ed|<STATE>) <ANY> [^,]*, (?:<DET>)\b", ""),
    # It opens the clause.
    ("b", "<ANY> (?:is (?:enough|fine|plenty)|will do)$", "said"),
    ("tb", r"<ANY> (?:<BE>|<EMB>|of|->)(?!\S)", ""),
    ("b", r"<o> (?:it\b|,)", ""),
    ("tb", r"<ANY>(?: ,)? (?:this|(?:<DET>) (?:<SELF>))\b", "said"),
    ("t", r"<ANY>(?: ,)? (?:<DET>) .*\b(?:is|are|gets) (?!(?:<STATE>)\b)\w+(?:ed|n|t)\b", "said"),
    ("b", r"<ANY>(?: ,)? (?:the|our) [đø] (?:<RUN>|is|are|gets?)\b", "said"),
    ("tb", r"<ANY>(?: ,)? (?:<DET>)\b", ""),
    ("tb", "<ANY><STOP>", "said"),
    ("t", r"<q> (?:\S*'s?|\S*s’|<MEASURE>|\S*ж\S*)(?!\S)", ""),
    ("t", r"<C>|<q> (?:<NOUN> ){1,2}(?:<MEASURE>|\S*ж\S*)<STOP>", ""),
    ("t", r"<q> (?:<NOUN> )?(?:<PERIODICAL>) (?!(?:<PREP>|and|or|but|then)\b)\w", ""),
    ("t", r"<q> (?:<NOUN> ){0,2}(?:<PERIODICAL>) :$|<j> (?:<NOUN> ){2}\w|(?:<j>|<c>) .*:$", ""),
    ("t", r"<q> <NOUN>(?: <NOUN>){0,2}?<STOP>", "name"),
    ("t", r"<c> [a-z]", "said"),
    ("tb", r"<ANY> (?:we|it|this)\b|<O>|<s>", "said"),
    ("t", r"<E> (?!\w*[^\Ws]s(?!\S))(?!\S+ (?:\S+ )?(?:<BE>)\b)", "said"),
    # It closes the clause, or what comes before a preposition.
    ("b", r"(?:it|this|it's)(?: one| is)* (?:an?|our) <Q> |.*\bas an? <Q> (?:<SELF>)\b", "self"),
    ("tb", "(?!.*<O>).*»(?!<STOP>)", ""),
    ("t", r"(?!.*, «)(?:.* )?(?:(?:<EMB>|<BE>) (?:.* )?|\( (?:<DET>) .*)«", ""),
    ("t", r"(?!.*(?:, \w+|scheduled for) «)\S+ (?:.* )?(?:<STATE>|\w*[^\We]ed) «", ""),
    ("b", r"(?!<STAYS>)<VERB> <T>(?: ,|$)", "said"),
    ("b", r"(?:gets|is) (?!<ADJ>)\w+ (?:\w+ )?«|<VERB> (?:ø|<VERB>) «", "said"),
    ("tb", r"<IDLE>.*(?:\b(?:for|about|before|after|until|with) [^,]*<T>|<T> [^)])", ""),
    ("tb", r"<IDLE>(?:\S+ <T>|.*<b>)", ""),
    ("tb", r"(?:.*\babout\b|(?:remind|tell|ask)\b.*\bto\b).*[^,( ] (?:<n>|<T>)", ""),
    ("t", r"<IDLE>(?:it|he|she|they)\b", ""),
    ("t", ".*<T>", "said"),
    ("t", r"\S+(?: (?:up|in|out) [^«]*)? ?<u> (?![,)]|at\b|on\b|$)", ""),
    ("tb", r"(?:prepare|book|plan)\b.*\bfor\b|(?:.* )?(?:before|after) .*«", ""),
    ("t", "", "said"),
    ("b", r"<PRE>(?:we (?:.*\b(?:meet|gather|discuss)\b)|(?:it|this) is (?:<ADJ>)\b)", ""),
    ("b", r"(?:(?:the|its|our) )?(?:schedule|frequency|cadence|interval|rhythm) is «", "said"),
    ("b", r"do (?:it|this) |(?:the|our|this) \S+ (?:goes|go) out\b|(?:cron|systemd)\b", "self"),
    ("b", r"(?:.* )?(?:it|this) (?:\w+ly |only |always )?(?:<RUN>)(?: off| up| out)? «", "self"),
    ("b", r"(?:<PRE>(?:<SUBJECT>)|(?:.* )?(?:<RUN>|gets?) (?:it|this))\b<OURS>", "self"),
    ("b", r"(?:.* )?(?:<EMB>|<BE>) (?:.* )?«|.*\b(?:for|about|of)\b.* , «", ""),
    ("b", r"(?:<SMALL>|<EMB>|<BE>|<ADJ>|covers|lasts|costs|\w+ly)\b", ""),
    ("b", r"[a-z]+ (?:\w\w+ly )?(?:(?:<SMALL>)\b|«)", "said"),
)


def _form(text: str) -> re.Pattern[str]:
    while (named := re.sub(r"<([A-Z]{2,})>", lambda name: _CLASSES[name[1]], text)) != text:
        text = named
    return re.compile(re.sub("<([A-Za-z])>", r"«[^»]*\1[^»]*»", text))


_TABLE: Final = [(place, _form(text), manner) for place, text, manner in _RULES]
_OTHER: Final = re.compile(  # a label that says when something else is, and one that says when
    r".*\b(?:last|next|previous|first|latest|opening|deadline|due|support|office|business)\b"
)
_LABEL: Final = re.compile(
    rf"(?:(?:how|start|{_CLASSES['DET']}|{_CLASSES['JOB']}|exec\w+|[đø]) )*(?:often|timing|cycle"
    r"|frequency|cadence|schedule|interval|recurrence|recurring|rhythm|periodicity"
    rf"|{_CLASSES['RUN']})\b|(?:(?:job|exec\w+|schedul\w+) )?(?:when|days?|times?|at|period)$"
    r"|(?:\S+ )?every$"
)
# Not read: drawers, blocks, planning, keywords, tables, quotations (whole lines); then links,
# stamps, code, quotations, struck text, addresses, paths, and words glued to a sign.
_LINES: Final = re.compile(  # what is left open goes on to the end, so that nothing is read twice
    r"(?im)^[ \t]*:[\w-]+:[ \t]*\n(?:(?![ \t]*:END:)[^\n]*\n)*(?:[ \t]*:END:)?[^\n]*"
    r"|^[ \t]*#\+begin_[^\n]*\n(?:(?![ \t]*#\+end_)[^\n]*\n)*[^\n]*"
    r"|^[ \t]*```[^\n]*\n(?:(?![ \t]*```)[^\n]*\n)*[^\n]*"
    r"|^[ \t]*(?:(?-i:SCHEDULED|DEADLINE|CLOSED):|#\+|\||>|:\w)[^\n]*"
)
_PROPERTY: Final = re.compile(r"(?im)^[ \t]*:(?:frequency|cadence|recurrence|repeats?):.*$|\S")
_INLINE: Final = re.compile(
    r"\[\[[^\]\n]{0,300}\](?:\[[^\]\n]{0,300}\])?\]|<[^<>\n]{1,80}>|\[(?:\d{4}-|fn:)[^\]\n]{0,60}\]"
    r"|(?<![\w=])=[^=\n]{1,300}=(?!\w)|(?<![\w~])~[^~\n]{1,300}~(?!\w)|`[^`\n]{1,300}`"
    r"|(?<![\w+])\+[^+\s][^+\n]{0,300}\+(?!\w)|\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”"
    r"|«[^»\n]{0,300}»|„[^“”\n]{0,300}[“”]|(?<!\w)['‘][^'’\n]{1,300}['’](?!\w)"
    r"|(?<!\S)[/~.#$%\\]++[A-Za-z]\S*+|(?<!\S)(?:@(?!(?:noon|midnight|hourly|daily|weekly|monthly|yearly)\b)|--?)[A-Za-z]\S*+"
    r"|(?<![\w/])\w++(?:://\S*+|(?:/\w++)+\.\w++)|(?<!\w)[^\W\d_]{2,}+\.[^\W\d_]\w*+"
    r"|(?<!\w)[^\W_]*+_\w*+|[«»]"
)
_TITLE: Final = re.compile(
    r"\A\**[ \t]*(?:[A-Z]{3,}[ \t]+)?(?:\[#\w\][ \t]*)?(?:COMMENT[ \t]+)?|[ \t]*\[[\d/%]*\][ \t]*"
    r"|[ \t]+:[\w@#%:]+:[ \t]*$"
)
_SENTENCE: Final = re.compile(r"(?<![ap]\.m)[.!]\s*$|[^\W\d]{3}[.;!?]\s[A-Z]")
_CUT: Final = re.compile(
    r"(?<![ap]\.m)(?<!\be\.g)(?<!\bi\.e)[.;?!]+(?=[\s)]|$)|(?<!\d)\s[-–—]+\s|\s[-–—]+\s(?!\d)"
    r"|\n[ \t]*(?=\n)|:+(?=\s)|\n[ \t]*(?=(?:[-+*]|\d+[.)])\s|[A-Z]\w* ?:)|\f"
)
# A labelled value ends with its line, and so does a comment.
_LABELLED: Final = re.compile(
    r"(?m)^([ \t]*(?:(?:[-+*] )?[A-Za-z]\w*(?: \w+)? ?:|#+)[ \t][^\n]*)\n(?![ \t]*#)"
)
_BULLET: Final = re.compile(r"[\s>#(]*(?:[-+*]|\d+[.)])?\s*(?:\[[ Xx-]\]\s*)?")
_NOISE: Final = re.compile(  # a modal before a verb of running, and ages: older than two days
    rf"\b(?:must|should|will|shall|please|(?:has|have|needs?|is \w+) to)"
    rf" (?=(?:(?:only|ever|always) )*(?:{_CLASSES['RUN']})\b)"
    rf"|\b(?:(?:must|should|will|shall|to) )+be (?=(?:{_CLASSES['MADE']})\b)"
    r"|\b(?:\w+er|more|less) than \w+ (?:\w+ )?(?:second|minute|hour|day|week|month|year)s?\b"
)
_ZONE: Final = re.compile(
    r"\s*\(?((?:UTC|GMT)(?:[+-]\d{1,2})?|[A-Z]{1,3}[SDE]?T|[A-Z][a-z]+/[A-Z]\w+|Z)\b"
    r"|\s*\(?(?:[Ll]ocal|[Ss]erver|[A-Z][a-z]+)(?=\s+time\b)|\s*\(?(?:Pacific|Eastern)\b"
)
_BEGUN: Final = re.compile(r"[#+*-] |.?\n|(?:\A|..)(?:[A-Z]|will\b)", re.DOTALL)
_DASH: Final = re.compile(r"\s{0,9}[-–—:]")
_OWN: Final = frozenset(("ø", *_CLASSES["JOB"].split("|"), "note"))  # labels of its own notes
_UTC: Final = frozenset({"UTC", "GMT", "Z", "Etc/UTC"})


class _Clause(NamedTuple):
    """A stretch of text between two stops."""

    tokens: list[Token]
    low: list[str]
    place: ClaimPlace
    is_heading: bool = False  # it ends in a colon
    is_other: bool = False  # the value of a label that names something else: `Deadline: Friday`


def claims(text: str, *, zone_name: str = "UTC") -> list[Claim]:
    """Return what a text says about its own schedule, in order.

    >>> [text[c.start:c.end] for text in ["Digest daily at 6"] for c in claims(text)]
    ['daily at 6']
    >>> claims("Archive the daily logs")
    []
    """
    plain = _LINES.sub(lambda m: _PROPERTY.sub(_blank, m[0]), text)
    plain = _INLINE.sub(lambda m: "ж" * len(m[0]), plain)  # one word, whatever it was
    first = plain.find("\n") if "\n" in plain else len(plain)
    title = _TITLE.sub(lambda m: " " * len(m[0]), plain[:first])
    place = ClaimPlace.BODY if _SENTENCE.search(title) else ClaimPlace.TITLE
    own = _own_words(title if place is ClaimPlace.TITLE else "")
    body = _LABELLED.sub("\\1\f", plain[first:])
    clauses = [*_clauses(title, 0, place, own), *_clauses(body, first, ClaimPlace.BODY, own)]
    pairs = ((each, said) for each in clauses for said in phrases_of(each.tokens))
    return [claim for each, said in pairs if (claim := _claim(plain, each, said, zone_name))]


def _blank(found: re.Match[str]) -> str:
    return found[0].replace(":", " ", 1) if len(found[0]) > 1 else " "


def _own_words(title: str) -> dict[str, str]:
    """Return how the words of a title name the entry: its last noun ø, the others đ."""
    words = re.findall(r"[^\W\d_]+(?:[-'][^\W\d_]+)*|[^\w\s]|\d+", title.lower())
    own = {word[:5]: "đ" for word in words if len(word) > 3}
    stop = re.compile(rf"{_CLASSES['PREP']}|\W")
    end = next((at for at, word in enumerate(words) if stop.fullmatch(word)), len(words))
    is_verbal = re.search(rf"\b(?:{_CLASSES['DET']})\b", " ".join(words[:end]))
    end = 0 if is_verbal else end  # mail the roster
    return own | ({words[end - 1]: "ø"} if end else {})


def _clauses(text: str, offset: int, place: ClaimPlace, own: dict[str, str]) -> Iterator[_Clause]:
    at, label = 0, list[str]()
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
        if tokens and len(tokens) <= 120:
            named = " ".join(own.get(word, own.get(word[:5], word)) for word in label)
            is_wrong = _OTHER.match(" ".join(label)) is not None
            is_label = not is_wrong and any(map(_LABEL.match, (named, " ".join(label))))
            is_wrong = is_wrong or (not is_label and "schedule" in label[1:])
            if is_label and (head := _implied(tokens, label)):
                tokens, low = [*head, *tokens], ["every", *low]
            is_own = not _OWN.isdisjoint(own.get(word, word) for word in label)
            if place is ClaimPlace.BODY:  # the title speaks of the entry: ø, or maybe: đ
                low[1:] = [own.get(word, own.get(word[:5], word)) for word in low[1:]]
            kind = ClaimPlace.LABEL if is_label else place
            is_other = is_wrong or (bool(label) and not is_own and kind is ClaimPlace.BODY)
            yield _Clause(tokens, low, kind, sign.startswith(":"), is_other)
        label = low if sign.startswith(":") and len(low) < 4 else []
        at = end


def _implied(tokens: Sequence[Token], label: Sequence[str]) -> list[Token]:
    """Return the word that a label stands for: `Interval: 2 weeks`, `Repeats: no`."""
    symbols, start = "".join(token.symbol for token in tokens), tokens[0].start
    if re.fullmatch("N?U", symbols):
        return [Token("e", None, start, start, "every")]
    is_no = len(tokens) == 1 and tokens[0].text.lower() in ("no", "never")
    is_no = is_no and not {"repeat", "repeats", "recurs", "recurring"}.isdisjoint(label)
    return [Token("1", None, start, tokens[0].end, "once")] if is_no else []


def _claim(text: str, clause: _Clause, said: Said, zone_name: str) -> Claim | None:
    tokens, low, first, last = clause.tokens, clause.low, said.first, said.last
    start, end = tokens[first].start, tokens[last - 1].end
    is_dash = _DASH.match(text, end) is not None
    is_whole = last - first == len(tokens) and (is_dash or clause.place is ClaimPlace.LABEL)
    says = tuple(say for say in said.says if _is_clear(say, is_whole=is_whole))
    symbols = "".join(token.symbol for token in tokens[first:last])
    while last < len(low) and low[last] in (*STRESS, "now"):
        last += 1
    is_stressed = last > said.last
    if zone := _ZONE.match(text, end):
        end = zone.end(1) if zone[1] else end
        if zone[1] != zone_name and not {zone[1], zone_name} <= _UTC:
            no_time = {"times": frozenset(), "windows": (), "part": "", "seconds": frozenset()}
            says = tuple(replace(say, **no_time) for say in says if say.recurs)  # type: ignore[arg-type]
        while last < len(low) and (tokens[last].start < zone.end() or low[last] in ("time", ")")):
            last += 1
    if not says or (clause.is_other and not first):
        return None
    mark = _mark(clause, symbols, says, first, last) + "s" * is_stressed
    is_begun = not first or clause.place is not ClaimPlace.BODY
    head = [] if is_begun or _BEGUN.match(text, max(0, tokens[0].start - 2)) else ["…"]
    left = _NOISE.sub("", " ".join(low[:first])).split()
    shown = " ".join([*head, *left, f"«{mark}»", *low[last:], *":" * clause.is_heading])
    rules = (then for at, form, then in _TABLE if clause.place[0] in at and form.match(shown))
    manner = next(rules, "")
    is_single = not is_whole and any(say.weekdays and not say.recurs for say in says)
    is_apart = not first or tokens[first - 1].symbol == ","
    manner = ("apart" if is_apart else "single") if manner and is_single else manner
    is_line = clause.place is ClaimPlace.BODY and last - first == len(tokens)
    place = ClaimPlace.LABEL if is_line else clause.place
    return Claim(start, end, says, place, manner) if manner else None


def _mark(clause: _Clause, symbols: str, says: Sequence[Say], first: int, last: int) -> str:
    """Return what the rules ask of a phrase, a letter each."""
    near = clause.tokens[max(0, first - 2) : first] + clause.tokens[last : last + 3]
    is_often = symbols.endswith("Q") and len(symbols) <= 2
    after = clause.tokens[last].text if last < len(clause.tokens) else ""
    longer = [t.text for t in clause.tokens if len(t.text) > 3 and t.text[0].isalpha()]
    is_cased = len(longer) > 2 and all(text[0].isupper() for text in longer)
    is_numbers = set(symbols) <= set("@N&,") and symbols.count("N") < 2
    letters = {
        "O": any(say.once for say in says),
        "Q": is_often,
        "X": is_often and any(token.symbol == "Q" for token in near),
        "q": is_often or re.fullmatch("Q[^Q]*|WR", symbols),
        "j": symbols == "WR",
        "c": symbols == "T",
        "T": not any(s.recurs or s.kinds or s.once or s.months or s.minutes for s in says),
        "b": is_numbers or set(symbols) <= set("mU&,"),  # a number that need not be a time
        "E": re.search("[ecP]", symbols) or symbols.count("W") > 1,
        "C": symbols[0] == "Q" and after[:1].isupper() and not after.isupper() and not is_cased,
        "u": re.fullmatch("e[UWs]|WtW", symbols),  # which may be the object of a verb
        "n": symbols[0] in "oiWPS",
        "o": symbols[0] == "o",
    }
    return "".join(letter for letter, is_so in letters.items() if is_so)


def _is_clear(say: Say, *, is_whole: bool) -> bool:
    """Whether a statement says something for sure; a single day may be meant only once."""
    is_open = (say.asks and not (say.either or say.edge)) or (
        say.weekdays and not (say.recurs or is_whole or say.times or say.part)
    )
    is_vague = any(day == WORKING and abs(n) > 1 for n, day in say.nth)  # which cron cannot say
    told = say.once, say.recurs, say.kinds, say.times, say.minutes, say.months
    return not (is_open or is_vague) and (any(told) or bool(is_whole and say.windows))
