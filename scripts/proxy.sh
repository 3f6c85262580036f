#!/bin/sh
# Find the proxy for the tests of the server behind one, or install the one of Debian.
# The script never fails: without a proxy these tests are skipped. nginx is tested, too, if it is
# installed; the script does not install it, because the package of Debian starts it on port 80.

. "$(dirname "$0")/apt.sh"

found() {
    (PATH="$PATH:/usr/sbin:/usr/local/sbin" && command -v haproxy) >/dev/null 2>&1
}

found && exit 0
if apt --version >/dev/null 2>&1; then
    echo "installing haproxy for the tests of the server behind a proxy"
    install haproxy
    found && exit 0
fi
echo "haproxy is not installed: the tests of the server behind it are skipped;" \
    "on Debian, install it with \`sudo apt-get install haproxy\`"
exit 0
