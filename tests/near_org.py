"""Text that is almost org: the pieces of the grammar, whole and broken, in any order."""

from random import Random

from hypothesis import strategies as st

PIECES = (
    "* ", "** ", "*** ", "*", "**", " * ", "\t* ", "*x", "TODO ", "DONE ", "TODO", "NEXT ", "[#A] ",
    "[#", "]", "[", "<", ">", ":", "::", ":a:", ":workflow:", ":component:", ":agent:", " :b:c: ",
    ":my-tag:", "SCHEDULED: ", "DEADLINE: ", "CLOSED:", "scheduled: ", "<2026-06-06 Sat 06:00 +1d>",
    "<2026-06-06>", "[2026-06-06 Sat]", "<2026-6-6>", "<2026-06-06]", "<2026-02-30 Mon 25:61 +0x>",
    "--<2026-06-08 Mon>", "<%%(diary)>", ":PROPERTIES:", ":properties:", ":END:", ":end:", ":ID: x",
    ":SCHEDULE: 0 6 * * *", ":KEY:", ":KEY+: v", ":a:b: v", ", ", ": v", ":LOGBOOK:", "#+begin_src py :in a :out b",
    "#+BEGIN_SRC", "#+begin_SRC js", "#+end_src", "#+END_SRC", "#+end_SRC", "#+begin_quote",
    "#+end_quote", "#+begin_example", "#+end_example", "#+BEGIN: x", "#+END:", "#+TODO: A B(b) | C",
    "#+SEQ_TODO: X", "#+START: s", "#+TITLE: t", ",* q", ",#+end_src", "- ", "  - ", "1. ", "+ ",
    "  ", "\t", " ", "\n", "\n", "\n", "\n\n", "\r\n", "\r", "\ufeff", "\x00", "\x0b", "\x85", "\u2028",
    "\u00a0", "é", "日本", "🕰", "\ud800", "a", "word ", "0", "%", "@", "_", "|", "(", ")", "\\", '"', "'",
)  # fmt: skip

texts = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(max_size=8), st.characters()), max_size=60
).map("".join)


def text_from(random: Random) -> str:
    """Return one text; the same generator gives the same texts."""
    pieces = random.choices(PIECES, k=random.randint(0, 40))
    if random.random() < 0.3:
        pieces.insert(
            random.randint(0, len(pieces)),
            chr(random.choice((random.randint(0, 0x2FF), random.randint(0, 0x10FFFF)))),
        )
    return random.choice(("", "\n", "")).join(pieces)
