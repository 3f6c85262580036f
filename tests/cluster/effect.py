"""What a run does in these tests: it leaves lines that no crash can take back.

    effect.py FILE WHOSE SECONDS CODE

When it begins it says for which entry, key and attempt it stands, in which run, on which machine,
and whether another run of WHOSE was alive beside it; then it takes its time, or less if there is
FILE.WHOSE.end, says that it is over, and ends with the code.
"""

import fcntl
import os
import sys
import time


def main(file: str, whose: str, seconds: str, code: str) -> int:
    known = [os.environ.get(f"HORAE_{name}", "-") for name in ("ENTRY", "KEY", "ATTEMPT", "RUN")]
    alone = os.open(f"{file}.{whose}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        company = "alone"
    except BlockingIOError:
        company = "beside"
    effects = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    node = os.environ.get("CLUSTER_NODE", "-")

    def say(what: str) -> None:
        line = " ".join([what, whose, *known, node, str(os.getpid()), company])
        os.write(effects, f"{line}\n".encode())

    say("begun")
    print(f"{whose} on {node}", flush=True)
    end = time.monotonic() + float(seconds)
    while (left := end - time.monotonic()) > 0 and not os.path.exists(f"{file}.{whose}.end"):
        time.sleep(min(left, 0.1))
    say("over")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
