"""The fields of a cron expression: text parsed to an integer with a bit for each value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from horae.errors import ScheduleError

_LONGEST: Final = 1_000  # characters; a rule with every minute written out has some 170
_SHOWN: Final = 72
# fmt: off
MONTHS: Final = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE",
    "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
)
WEEKDAYS: Final = (
    "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY",
)
# fmt: on
_SPOKEN: Final = re.compile(r"(?i)\b(?:every|each|at|daily|weekly|monthly|hourly|weekdays?)\b")
NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}  # fmt: skip
FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 2199


class CronError(ScheduleError, code="cron"):
    """A cron expression that is not valid."""

    def __init__(
        self, expression: str, *, field: str, reason: str, column: int = 1, width: int = 1
    ) -> None:
        self.expression = expression
        self.field = field
        self.reason = reason
        self.column = column
        self.width = width
        shown = expression if len(expression) <= _SHOWN else expression[:_SHOWN] + "…"
        super().__init__(f"cron {shown!r}: {field} {reason}")

    def caret(self) -> str:
        """Return two lines: the expression, and a caret under the wrong part."""
        start = max(0, self.column - 1 - _SHOWN // 2)
        line = "".join(c if c.isprintable() else " " for c in self.expression[start:])[:_SHOWN]
        indent = self.column - 1 - start
        return f"{line}\n{' ' * indent}{'^' * max(1, min(self.width, len(line) - indent))}"


class CronField(NamedTuple):
    word: str
    low: int
    high: int
    values: dict[str, int]
    whole: int
    names: Sequence[str]


def _field(word: str, low: int, high: int, names: Sequence[str] = ()) -> CronField:
    values = {f"{n:02}": n for n in range(low, min(high, 9) + 1)}
    values |= {str(n): n for n in range(low, high + 1)}
    for n, name in enumerate(names, low):
        values |= {name[:3]: n, name: n}
    return CronField(word, low, high, values, (2 << high) - (1 << low), names)


SECONDS: Final = _field("second", 0, 59)
MINUTES: Final = _field("minute", 0, 59)
HOURS: Final = _field("hour", 0, 23)
DAY: Final = _field("day of month", 1, 31)
MONTH: Final = _field("month", 1, 12, MONTHS)
WEEKDAY: Final = _field("weekday", 0, 7, WEEKDAYS)
YEAR: Final = _field("year", FIRST_YEAR, _LAST_YEAR)
_FIELDS: Final = (SECONDS, MINUTES, HOURS, DAY, MONTH, WEEKDAY, YEAR)
_ANY_DAY: Final = ("*", "?")


class FieldError(Exception):
    """A part of a field that is not valid; `read_masks` adds the place of the field."""

    def __init__(self, field: CronField, part: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason
        self.offset = 0
        self.width = max(1, len(part))


def split_fields(expression: str) -> Sequence[str]:
    if len(expression) > _LONGEST:
        reason = f"has {len(expression)} characters, more than {_LONGEST}"
        raise CronError(expression, field="expression", reason=reason, column=_LONGEST + 1)
    if not expression.isascii():
        place, odd = next((i, c) for i, c in enumerate(expression) if not c.isascii())
        reason = f"has {odd!a} (U+{ord(odd):04X}); use only ASCII letters, digits and spaces"
        raise CronError(expression, field="expression", reason=reason, column=place + 1)
    parts = expression.upper().split()
    if len(parts) == 1 and parts[0] in NICKNAMES:
        parts = NICKNAMES[parts[0]].split()
    if not 5 <= len(parts) <= 7:
        raise _miscounted(expression)
    parts = ["0", *parts] if len(parts) == 5 else parts
    return parts if len(parts) == 7 else [*parts, "*"]


def read_masks(expression: str) -> tuple[Sequence[str], tuple[int, ...]]:
    """Return the seven fields, and the mask of each: 0 where a day field or the year is ignored."""
    texts = split_fields(expression)
    second, minute, hour, day, month, weekday, year = texts
    try:
        return texts, (  # a loop over the fields takes noticeably longer
            mask_of(SECONDS, second),
            mask_of(MINUTES, minute),
            mask_of(HOURS, hour),
            0 if day in _ANY_DAY else mask_of(DAY, day),
            mask_of(MONTH, month),
            0 if weekday in _ANY_DAY else mask_of(WEEKDAY, weekday),
            0 if year == "*" else mask_of(YEAR, year),
        )
    except FieldError as error:
        refused = error
    tokens = list(re.finditer(r"\S+", expression))
    token = tokens[_FIELDS.index(refused.field) - (1 if len(tokens) == 5 else 0)]
    if token[0].upper().startswith(("TZ=", "CRON_TZ=")):
        refused.reason = f"{token[0]!r} is a time zone; set it separately, not in the expression"
    elif len(tokens) == 6 and re.fullmatch(r"\d{4}", tokens[5][0]):
        refused.reason += "; an expression with a year has seven fields and begins with the second"
    column = token.start() + refused.offset + 1
    word, reason = refused.field.word, refused.reason
    raise CronError(expression, field=word, reason=reason, column=column, width=refused.width)


def mask_of(field: CronField, text: str) -> int:
    if text == "*":
        return field.whole
    value = field.values.get(text)
    if value is not None:
        return 1 << value

    mask = offset = 0
    for item in text.split(","):
        try:
            mask |= _item(field, item)
        except FieldError as refused:
            refused.offset += offset
            raise
        offset += len(item) + 1
    return mask


def _item(field: CronField, item: str) -> int:
    values = field.values
    if item in values:
        return 1 << values[item]
    body, slash, text = item.partition("/")
    step = _step(field, item, text) if slash else 0
    if body == "*":
        return _series(field.low, field.high, step or 1)

    # The usual case, parsed faster.
    first, dash, last = body.partition("-")
    if first in values and last in values and values[first] <= values[last]:
        return _series(values[first], values[last], step or 1)
    if field is DAY and ("L" in item or "W" in item):
        return _special_day(item)
    if field is WEEKDAY and ("#" in item or item.endswith("L")):
        return _special_weekday(item)
    if dash and not (first and last and "-" not in last):
        raise FieldError(field, item, f"{item!r} is not a range; write it as a-b")

    low = _value(field, item, first)
    if not dash:
        return _series(low, field.high, step) if step else 1 << low
    high = _value(field, item, last)
    if field is WEEKDAY and low > 0 and high == 0 and not last.isdigit():
        high = 7
    if high < low:
        reason = f"range {body} runs backwards; write {_unwrapped(field, low, high, step)}"
        raise FieldError(field, item, reason)
    return _series(low, high, step or 1)


def _series(low: int, high: int, step: int) -> int:
    count = (high - low) // step + 1
    if count == 1:
        return 1 << low
    # The geometric series: 1 + 2^step + 2^(2 step) + …
    return ((1 << step * count) - 1) // ((1 << step) - 1) << low


def _value(field: CronField, item: str, text: str) -> int:
    value = field.values.get(text)
    if value is not None:
        return value
    if text.isdigit():
        number = int(text)
        if field.low <= number <= field.high:
            return number
        raise FieldError(field, item, f"{number} is outside {field.low}-{field.high}")
    raise FieldError(field, item, _unknown(field, item, text))


def _step(field: CronField, item: str, text: str) -> int:
    if not text.isdigit():
        reason = f"step {text!r} is not a number" if text else "step is missing after '/'"
        raise FieldError(field, item, f"{reason}; write {item.partition('/')[0] or '*'}/2")
    if step := int(text):
        return step
    raise FieldError(field, item, f"step 0 in {item} is not allowed; the smallest step is 1")


def _special_day(item: str) -> int:
    """Return bit 32 + n for `L-n`, bit 64 for `LW`, bit 64 + n for `nW`."""
    found = re.fullmatch(r"(\d+)W|(LW)|L(?:-([1-9]|[12]\d|30))?", item)
    if found is None:
        reason = f"{item!r} is not valid; write L (last day), L-3, LW (last weekday) or 15W"
        raise FieldError(DAY, item, reason)
    nearest, last, before = found.groups()
    if nearest:
        return 1 << 64 + _value(DAY, item, nearest)
    return 1 << (64 if last else 32 + int(before or 0))


def _special_weekday(item: str) -> int:
    """Return bit 8 + d + 7(n-1) for `d#n` and bit 43 + d for `dL`."""
    found = re.fullmatch(r"(\w+?)(?:#([1-5])|L)", item)
    if found is None:
        reason = f"{item!r} is not valid; write FRI#2 for the second Friday, FRIL for the last"
        raise FieldError(WEEKDAY, item, reason)
    number = _value(WEEKDAY, item, found[1]) % 7
    return 1 << (8 + number + 7 * (int(found[2]) - 1) if found[2] else 43 + number)


def _miscounted(expression: str) -> CronError:
    parts = expression.split()
    match len(parts):
        case 0:
            reason = "is empty; write five fields, such as '0 9 * * *'"
        case count if count == 1 or parts[0].startswith("@"):
            reason = _not_a_nickname(parts[0])
        case 4 if suggestion := _completed(parts):
            reason = f"has 4 fields; {suggestion}"
        case count if count < 5:
            reason = f"has {count} fields; it needs minute, hour, day of month, month and weekday"
        case count:
            reason = f"has {count} fields; it can have 5, 6 (second first) or 7 (year last)"
    if len(parts) > 1 and parts[0][0] != "@" and _SPOKEN.search(expression):
        reason += "; for a schedule in words use --when"
    width = len(expression.strip())
    start = len(expression) - len(expression.lstrip()) if parts else 0
    return CronError(expression, field="expression", reason=reason, column=start + 1, width=width)


def _not_a_nickname(word: str) -> str:
    from difflib import get_close_matches  # only errors need it

    lower = word.lower()
    if lower == "@reboot":
        return "@reboot is not supported; write the times to run at"
    if lower.startswith("@every"):
        return "@every is not supported; write '*/5 * * * *' for every 5 minutes"
    known = [name.lower() for name in NICKNAMES]
    if close := get_close_matches("@" + lower.lstrip("@"), known, n=1, cutoff=0.75):
        return f"{word!r} is not known; did you mean {close[0]}?"
    if word.startswith("@"):
        return f"{word!r} is not known; write one of {', '.join(known)}"
    return "has 1 field; it needs minute, hour, day of month, month and weekday"


def _completed(parts: list[str]) -> str | None:
    from horae.timing.cron import Cron  # only for the message

    places = [4, 3, 2, 1, 0]
    if parts[0].isdigit() and parts[1] == "*" and parts[3] != "*":
        places = [4, 0]  # `9 * * MON` names an hour rather than a minute
    for place in places:
        filler = "*" if place else "0"
        whole = " ".join([*parts[:place], filler, *parts[place:]])
        try:
            if not Cron(whole).never:
                return f"the {_FIELDS[place + 1].word} seems to be missing; write {whole!r}"
        except CronError:
            continue
    return None


def _unwrapped(field: CronField, low: int, high: int, step: int) -> str:
    if field is YEAR:
        return f"{high}-{low}"
    top = 6 if field is WEEKDAY else field.high
    kept = [*range(low, top + 1), *range(field.low, high + 1)][:: step or 1]
    halves = [n for n in kept if n >= low], [n for n in kept if n < low]
    return ",".join(field_text(half, field.low, top, field.names) for half in halves if half)


def _unknown(field: CronField, item: str, text: str) -> str:
    from difflib import get_close_matches  # only errors need it

    if not item:
        return "has an empty item in its list; remove the extra comma"
    if not text or "*" in text:
        return f"{item!r} is not valid; write * alone, or with a step such as */2"
    if text in ("L", "LW", "W", "?") or "#" in text:
        return f"{item!r} is not valid; ?, L, W and # are for the day fields"
    for other in (MONTH, WEEKDAY):
        if other is not field and text[:3] in other.values and text[:3].isalpha():
            return f"{text!r} is a {other.word}, not a {field.word}"
    instead, names = f"a number in {field.low}-{field.high}", [name[:3] for name in field.names]
    if not names:
        return f"{text!r} is not known; write {instead}"
    if close := get_close_matches(text, field.names, n=1) or get_close_matches(text, names, n=1):
        return f"{text!r} is not known; did you mean {close[0][:3]}?"
    return f"{text!r} is not known; write {names[0]}-{names[-1]} or {instead}"


def field_text(values: Iterable[int], low: int, high: int, names: Sequence[str] = ()) -> str:
    """Return values as the text of a field with bounds.

    >>> field_text({1, 2, 3, 9}, 0, 23), field_text(range(0, 60, 15), 0, 59)
    ('1-3,9', '*/15')
    """
    found = sorted(values)
    texts = [names[each - low][:3].upper() if names else str(each) for each in found]
    step = found[1] - found[0] if len(found) > 1 else 0
    if step and found == list(range(found[0], found[-1] + 1, step)):
        is_cycle = found[0] == low and found[-1] + step > high and not (high + 1 - low) % step
        if is_cycle and (step == 1 or len(found) > 2 or high < 13):
            return "*" if step == 1 else f"*/{step}"
        if len(found) > (2 if step == 1 else 3):
            return f"{texts[0]}-{texts[-1]}" + ("" if step == 1 else f"/{step}")
    rows = groupby(enumerate(found), key=lambda pair: pair[1] - pair[0])
    runs = [[texts[place] for place, _ in row] for _, row in rows]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs)


def clock_fields(minutes: Iterable[int]) -> list[tuple[str, str]]:
    """Return the fewest minute and hour fields for minutes of the day.

    >>> clock_fields([570, 1020, 1050]), clock_fields(range(0, 1440, 15))
    ([('30', '9'), ('0,30', '17')], [('*/15', '*')])
    """
    hours: dict[int, list[int]] = {}
    for at in sorted(minutes):
        hours.setdefault(at // 60, []).append(at % 60)
    same: dict[tuple[int, ...], list[int]] = {}
    for hour, each in hours.items():
        same.setdefault(tuple(each), []).append(hour)
    return [(field_text(each, 0, 59), field_text(of, 0, 23)) for each, of in same.items()]
