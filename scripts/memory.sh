#!/bin/sh
# Make a directory for the files of the tests, in memory where there is room, and print its name.
# Most tests write a ledger, and a commit waits for the disk.

room=$(df -kP /dev/shm 2>/dev/null | awk 'END { print $4 + 0 }')
if [ "$room" -gt 4000000 ] && [ -w /dev/shm ]; then
    TMPDIR=/dev/shm
fi
mktemp -d "${TMPDIR:-/tmp}/horae-XXXXXX"
