#!/bin/sh
# Find the browser that the page is tested in, or install Debian's; if neither can be, say so.
# It never fails: without a browser those tests are skipped, and all others run.

. "$(dirname "$0")/apt.sh"

found() {
    { command -v chromium || command -v chromium-browser; } >/dev/null 2>&1 &&
        command -v chromedriver >/dev/null 2>&1
}

found && exit 0
if apt --version >/dev/null 2>&1; then
    echo "no chromium here: installing it, for the tests of the page"
    install chromium chromium-driver fonts-dejavu-core
    found && exit 0
    echo "chromium could not be installed, so the tests of the page in a browser are skipped;" \
        "\`apt-get install chromium chromium-driver\` says why"
else
    echo "no chromium and chromedriver here, so the tests of the page in a browser are skipped;" \
        "on Debian \`sudo apt-get install chromium chromium-driver\` brings both"
fi
exit 0
