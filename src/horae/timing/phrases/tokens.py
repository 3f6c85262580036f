"""Words for time: each word of a text becomes one symbol with a value.

The vocabulary is closed: numbers, days, months, units, clocks, and the small words between them.
Any other word is the symbol `.`, whatever it means.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple

WORKDAYS: Final = frozenset(range(5))
WEEKEND: Final = frozenset({5, 6})
WEEK: Final = frozenset(range(7))
DAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


class Token(NamedTuple):
    symbol: str
    value: Any
    start: int
    end: int
    text: str


# A symbol, and the words that it stands for; `word=value` where the word is not the value.
# A unit is `1h`; a frequency word says so many units, HALF of one, or TWO_WAYS to read it.
HALF, TWO_WAYS = 0, -2
_TABLE: Final = {
    "e": "every each all", "h": "the", "a": "a an per", "@": "at", "o": "on", "i": "in during",
    "f": "of", "F": "from between", "&": "and & plus", "x": "except excluding but without",
    "~": "other", "A": "alternate alternating", "z": "times time", "H": "half",
    "k": "o'clock oclock", "p": "past after", "J": "top", "g": "starting beginning", "|": "or",
    "t": "to through thru until till til", "n": "nearest", "l": "early late mid",
    "c": "once=1 twice=2 thrice=3", "2": "second=2 seconds=2", "q": "quarter quarters",
    "K": "noon=720 midday=720 midnight=0", "v": "also too additionally again",
    "R": "morning afternoon evening night overnight=night lunchtime=lunch lunch daytime=day am pm",
    "V": "mornings=morning afternoons=afternoon evenings=evening nights=night lunchtimes=lunch",
    "_": "please run runs fire fires start starts execute it this always exactly sharp only"
    " precisely calendar",
    "N": "one=1 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11 twelve=12"
    " thirteen=13 fourteen=14 fifteen=15 sixteen=16 seventeen=17 eighteen=18 nineteen=19 twenty=20"
    " thirty=30 forty=40 fifty=50 sixty=60 ninety=90",
    "O": "first=1 third=3 fourth=4 fifth=5 sixth=6 seventh=7 eighth=8 ninth=9 tenth=10 eleventh=11"
    " twelfth=12 fifteenth=15 twentieth=20 last=-1 final=-1 penultimate=-2",
    "U": "sec=1s secs=1s minute=1min minutes=1min min=1min mins=1min hour=1h hours=1h hr=1h hrs=1h"
    " h=1h day=1d days=1d week=1w weeks=1w fortnight=2w fortnights=2w month=1m months=1m year=1y"
    " years=1y",
    "Q": "minutely=1min hourly=1h halfhourly=30min semihourly=30min quarterhourly=15min daily=1d"
    " nightly=1d weekly=1w fortnightly=2w monthly=1m quarterly=3m halfyearly=6m semiyearly=6m"
    " semiannual=6m semiannually=6m halfannually=6m yearly=1y annual=1y annually=1y biennial=2y"
    " biennially=2y semiweekly=0w semimonthly=0m biweekly=-2w bimonthly=-2m biyearly=-2y"
    " biannual=-2y biannually=-2y",
}  # fmt: skip
_DAYS: Final = {
    ("S", WORKDAYS): "weekdays workdays", ("S", WEEKEND): "weekends",
    ("S", frozenset({0, 2, 4})): "mwf", ("S", frozenset({1, 3})): "tth tuth",
    ("s", WORKDAYS): "weekday workday", ("s", WEEKEND): "weekend",
}  # fmt: skip
_UNIT: Final = re.compile(r"(-?\d+)([a-z]+)")
# Several words that are one symbol.
_IDIOMS: Final = {
    r"(?:one[ -](?:time|off)|just once|only once|once)[ -]only": ("1", None),
    r"one[ -]off|(?:just once|only once|one[ -]time)(?! (?:a|an|per|each|every|in)\b)": ("1", None),
    "(?:this )?(?:a|one) single time": ("1", None), "12 noon": ("K", 720), "12 midnight": ("K", 0),
    r"(?:all )?(?:a?round[ -]the[ -]clock|day and night|24/7|all day(?: long)?)": ("Z", None),
    r"(?:working|business|office|school|week|work) days": ("S", WORKDAYS),
    r"(?:working|business|office|school|week|work) day": ("s", WORKDAYS),
    r"weekends? included|including weekends|even (?:at|on) weekends"
    "|(?<=every day )of the (?:week|year)|(?<=every hour )of the day": ("v", None),
    r"(?:all )?(?:the )?year[ -]round|all year(?: long)?|throughout the year": ("y", None),
    r"half[ -](?:an )?hours?": ("U", (30, "min")),
    r"quarters?[ -](?:of an |an )?hours?": ("U", (15, "min")),
    r"half[ -](?:a )?years?": ("U", (6, "m")),
    r"skipping shorter months|(?:only )?in months that have (?:one|it)": ("!", None),
    r"(?:but )?(?:not|never) (?:on|at|in)(?: the)?|but not|(?:apart|aside) from|other than"
    "|not(?= (?:mon|tue|wed|thu|fri|sat|sun|week))": ("x", None),
    r"first (?:on|(?:run|time)(?: on)?)": ("g", None),
    "each and every|(?:every|each) single": ("e", None),
    "(?:all )?through(?:out)?(?= the (?:night|day|morning|evening))": ("i", None),
    "mo?[-–]fr?": ("S", WORKDAYS), r"a\.m": ("R", "am"), r"p\.m": ("R", "pm"),
    "(?:start|beginning) of": ("b", 1), "end of": ("b", -1),
    "christmas eve": ("X", (12, 24)), "christmas day|(?<=every )christmas": ("X", (12, 25)),
    "boxing day": ("X", (12, 26)), "halloween": ("X", (10, 31)),
    "new year'?s eve": ("X", (12, 31)), "new year'?s day": ("X", (1, 1)),
}  # fmt: skip
_FORMS: Final = {
    re.compile(rf"(?:{form})\b".replace("'", "['’]"), re.IGNORECASE): said
    for form, said in _IDIOMS.items()
}


def _lexicon() -> dict[str, tuple[str, Any]]:
    words: dict[str, tuple[str, Any]] = {}
    for symbol, text in _TABLE.items():
        for each in text.split():
            word, _, value = each.partition("=")
            words[word] = symbol, int(value) if value.lstrip("-").isdigit() else value or word
            if unit := _UNIT.fullmatch(value):
                words[word] = symbol, (int(unit[1]), unit[2])
    for meaning, text in _DAYS.items():
        words |= dict.fromkeys(text.split(), meaning)
    for day, name in enumerate(map(str.lower, DAY_NAMES)):
        shorter = {1: "tues", 2: "weds", 3: "thur thurs"}.get(day, "").split()
        words |= dict.fromkeys((name, name[:3], *shorter), ("W", frozenset({day})))
        words |= dict.fromkeys((f"{name}s", f"{name[:3]}s"), ("P", frozenset({day})))
    for month, name in enumerate(map(str.lower, MONTH_NAMES), 1):
        words |= dict.fromkeys((name, name[:3]), ("M", month))
    return words | {"sept": ("M", 9)}


_WORDS: Final = _lexicon()
_SHY: Final = frozenset({"sat", "sun", "mon", "wed", "may", "march", "mar", "jan", "dec", "sec"})
_LEX: Final = re.compile(
    r"""
    (?P<iso>\d{4}-\d\d-\d\d)(?![\w-])
  | (?P<clock>(?<![\w.:])(?:[01]?\d|2[0-4])(?:[:.h][0-5]\d(?::[0-5]\d)?)?\ ?[ap]\.?m\b\.?
        |(?<![\w.:])\d{1,2}(?::[0-5]\d(?::[0-5]\d)?(?![\w:])|h[0-5]\d\b)
        |(?:(?<=(?:day|ays|ily)\ )|(?<=(?:day|ays|ily),\ ))\d{1,2}h(?=\s*(?:$|[,;.)])))
  | (?P<point>(?<![\w.:$€£])(?:[01]?\d|2[0-3])\.[0-5]\d(?![\w.%]))
  | (?P<minute>(?<![\w:]):[0-5]\d(?![\w:]))
  | (?P<ordinal>\d{1,2}(?:st|nd|rd|th)(?:-to-last)?\b)
  | (?P<many>\d{1,2}\ ?[x×](?!\w))
  | (?P<idiom>\b(?:IDIOMS)\b)
  | (?P<glued>(?<![\w.:])(?=\d{1,4}(?:secs?|mins?|hrs?|[smhdw])(?![\w-]))\d+)
  | (?P<number>(?<![\w.:$€£#/])\d{1,6}(?![\w%:]|\.\d|/\d|-[A-Za-z]))
  | (?P<word>(?:\d{1,3}-)?[^\W\d_]+(?:['’][^\W\d_]+)*(?:-[^\W_]+(?:['’][^\W\d_]+)*)*)
  | (?P<dash>--?|[–—])
  | (?P<other>\w+|\S)
    """.replace("IDIOMS", "|".join(_IDIOMS).replace(" ", r"\ ").replace("'", "['’]")),
    re.VERBOSE | re.IGNORECASE,
)
_CLOCK: Final = re.compile(r"(\d+)(?:[:.h](\d\d))?(?::(\d\d))?(?: ?([ap])\.?m)?", re.IGNORECASE)
_LETTERS: Final = {"s": (1, "s"), "m": (1, "min"), "d": (1, "d"), "w": (1, "w")}
_TO_LAST: Final = re.compile(r"(?<=nd|rd|th) to last\b", re.IGNORECASE)  # the second to last one


def tokens_of(text: str, *, prose: bool = False) -> list[Token]:
    """Return the words and signs of a text, each with its symbol.

    In *prose*, a small word that is seldom a name of time ("sat", "may") is no such name.

    >>> "".join(token.symbol for token in tokens_of("every other Friday at half past six"))
    'e~W@HpN'
    """
    found: list[Token] = []
    for match in _LEX.finditer(_TO_LAST.sub("-to-last", text)):
        is_next = bool(found) and found[-1].end == match.start()
        is_unit = is_next or "".join(each.symbol for each in found[-2:]) == "eN"  # every 30 s
        if is_next and match[0] == "." and found[-1].symbol in "WMUR" and len(found[-1].text) < 6:
            continue  # Tues.
        if is_unit and found[-1].symbol == "N" and (unit := _LETTERS.get(match[0].lower())):
            found.append(Token("U", unit, *match.span(), match[0]))  # 5m
        else:
            found += _read(match)
    for at in range(1, len(found) - 1):
        if found[at].symbol == "-" and found[at - 1].symbol == found[at + 1].symbol in [*"WMTN"]:
            found[at] = found[at]._replace(symbol="t")  # Mon - Fri
    return [_shy(found, at) for at in range(len(found))] if prose else found


def _shy(found: list[Token], at: int) -> Token:
    token, after = found[at], found[at + 1].symbol if at + 1 < len(found) else ""
    near = "".join(each.symbol for each in found[max(0, at - 2) : at + 3])
    is_other = (
        (token.symbol == "c" and after not in "aeQ,o)/")
        or (token.symbol in "WM" and token.text in _SHY and len(re.findall("[WPMS]", near)) < 2)
        or (token.symbol == "_" and token.text.lower() not in STRESS)
        or token.text.lower() == "all"
        or (token.symbol == "V" and at > 0 and found[at - 1].symbol == "N")  # two nights
        or (token.text.lower() == "till" and at > 0 and found[at - 1].symbol in "ha")
    )
    return token._replace(symbol=".") if is_other else token


STRESS: Final = ("only", "sharp", "exactly", "precisely")


def _read(match: re.Match[str]) -> list[Token]:
    kind, text, span = match.lastgroup, match[0], match.span()
    symbol = "."
    value: Any = None
    match kind:
        case "iso":
            with suppress(ValueError):  # there is no such day, so it is no date
                symbol, value = "d", date.fromisoformat(text)
        case "clock" | "point":
            value = _clock(text)
            symbol = "." if value is None else "T" if kind == "clock" else "D"
        case "ordinal":
            value = int(text.lower().removesuffix("-to-last")[:-2]) * (-1 if "-" in text else 1)
            symbol = "O" if 0 < abs(value) < 32 else "."
        case "minute":
            symbol, value = "B", int(text[1:])
        case "many":
            symbol, value = "c", int(text.rstrip("x× X"))
        case "number" | "glued":
            value = int(text)
            is_clock = len(text) == 4 and value % 100 < 60 and value < 2400
            is_year = len(text) == 4 and 1970 <= value <= 2199
            symbol = "Y" if is_year else "m" if is_clock else "N"
        case "idiom":
            symbol, value = next(
                said
                for form, said in _FORMS.items()
                if (found := form.match(match.string, span[0])) and found.end() == span[1]
            )
        case "word":
            return _word(text, span)
        case "dash":
            before, after = match.string[: span[0]][-1:], match.string[span[1] :][:1]
            is_tight = not (before.isspace() and after.isspace()) and bool(after.strip())
            symbol = "t" if is_tight else "-"  # 9–17; a dash with spaces around divides a text
        case _ if text in ",/&@():;+":
            symbol = text.replace("+", "&")
    return [Token(symbol, value, *span, text)]


def _word(text: str, span: tuple[int, int]) -> list[Token]:
    low = text.lower().replace("’", "'")
    found = _WORDS.get(low) or _WORDS.get(low.replace("-", ""))  # bi-weekly
    head, _, tail = low.partition("-")
    parts = [("N", int(head)) if head.isdecimal() else _WORDS.get(head), _WORDS.get(tail)]
    if found is None and tail == "to-last" and parts[0] and parts[0][0] in "O2":
        found = "O", -parts[0][1]
    if found or not (parts[0] and parts[1]):
        symbol, value = found or (".", None)
        return [Token(symbol, value, *span, text)]
    first, last = parts[0], parts[1]
    if first[0] + last[0] == "NN":  # twenty-five
        return [Token("N", first[1] + last[1], *span, text)]
    if tail == "only" and first[0] in "WPs":  # weekend-only
        first = "S", first[1]
    at = span[0] + len(head)
    one = Token(first[0], first[1], span[0], at, text[: len(head)])
    between = [Token("t", None, at, at + 1, "-")] if first[0] == last[0] else []  # Mon-Fri
    return [one, *between, Token(last[0], last[1], at + 1, span[1], tail)]


def _clock(text: str) -> tuple[int, int, bool] | None:
    """Return the minute of the day, the second, and whether it may be twelve hours later.

    None: no clock shows this. A time with am or pm, a 0 in front or 24 hours is certain.
    """
    match = _CLOCK.match(text)
    assert match is not None
    hour, minute, second = (int(each or 0) for each in match.group(1, 2, 3))
    if match[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[4] in "pP" else 0)
    is_open = not match[4] and 1 <= hour <= 12 and not text.startswith("0")
    return (hour * 60 + minute, second, is_open) if hour < 24 else None
