#!/bin/sh
# Find a proxy that the server is tested behind, or install Debian's; if neither can be, say so.
# It never fails: without one those tests are skipped. nginx is tested, too, where it is installed;
# it is not installed here, since Debian's would begin to listen at port 80.

. "$(dirname "$0")/apt.sh"

found() {
    (PATH="$PATH:/usr/sbin:/usr/local/sbin" && command -v haproxy) >/dev/null 2>&1
}

found && exit 0
if apt --version >/dev/null 2>&1; then
    echo "no haproxy here: installing it, for the tests of the server behind a proxy"
    install haproxy
    found && exit 0
fi
echo "no haproxy here, so the tests of the server behind it are skipped;" \
    "on Debian \`sudo apt-get install haproxy\` brings it"
exit 0
