#!/bin/sh
# Find the browser for the tests of the page, or install the one of Debian.
# The script never fails: without a browser these tests are skipped, and all others run.

. "$(dirname "$0")/apt.sh"

found() {
    { command -v chromium || command -v chromium-browser; } >/dev/null 2>&1 &&
        command -v chromedriver >/dev/null 2>&1
}

found && exit 0
if apt --version >/dev/null 2>&1; then
    echo "installing chromium for the tests of the page"
    install chromium chromium-driver fonts-dejavu-core
    found && exit 0
    echo "chromium could not be installed: the tests of the page in a browser are skipped;" \
        "to see why, run \`apt-get install chromium chromium-driver\`"
else
    echo "chromium and chromedriver are not installed: the tests of the page in a browser are skipped;" \
        "on Debian, install both with \`sudo apt-get install chromium chromium-driver\`"
fi
exit 0
