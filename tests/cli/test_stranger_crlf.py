"""A plan with the line ends of Windows runs like its twin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calling import Call

PLAN = """* Count :workflow:
** Say :component:
#+begin_src sh :out said
echo one | cat
#+end_src
** Hear :component:
#+begin_src python :in said
import sys
print(repr(sys.stdin.read().strip()), \\
      "heard")
#+end_src
"""


def test_blocks_with_windows_line_ends_run_like_their_twins(call: Call) -> None:
    records = []
    for ends in ("\n", "\r\n"):
        Path("plan.org").write_bytes(PLAN.replace("\n", ends).encode())
        ended = call("run", "plan.org", "--json")
        assert ended.code == 0
        records.append([each["tasks"] for each in ended.data])
    assert records[0] == records[1] == [{"Say": "one", "Hear": "'one' heard"}]
