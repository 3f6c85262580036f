"""What a run does in these tests: it leaves one line that no crash can take back.

    effect.py FILE SECONDS CODE

The line says for which entry, key and attempt it stands, in which run and process, and whether
another run of the same entry was alive beside it. Then it takes its time, and ends with the code.
"""

import fcntl
import os
import sys
import time


def main(file: str, seconds: str, code: str) -> int:
    known = [os.environ[f"HORAE_{name}"] for name in ("ENTRY", "KEY", "ATTEMPT", "RUN")]
    alone = os.open(f"{file}.{known[0]}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        company = "alone"
    except BlockingIOError:
        company = "beside"
    line = " ".join([*known, str(os.getpid()), company])
    effects = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(effects, f"{line}\n".encode())
    os.fsync(effects)
    time.sleep(float(seconds))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
