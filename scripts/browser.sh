#!/bin/sh
# Find the browser that the page is tested in, or install Debian's; if neither can be, say so.
# It never fails: without a browser those tests are skipped, and all others run.

found() {
    { command -v chromium || command -v chromium-browser; } >/dev/null 2>&1 &&
        command -v chromedriver >/dev/null 2>&1
}

# How apt-get is called without asking anybody for a password; nothing if it cannot be.
apt() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null &&
            sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

install() {
    # No list of packages yet, or an old one, is the usual reason for a first no.
    apt install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core ||
        { apt update -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 &&
            apt install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core; }
}

found && exit 0
if apt --version >/dev/null 2>&1; then
    echo "no chromium here: installing it, for the tests of the page"
    install >/dev/null 2>&1
    found && exit 0
    echo "chromium could not be installed, so the tests of the page in a browser are skipped;" \
        "\`apt-get install chromium chromium-driver\` says why"
else
    echo "no chromium and chromedriver here, so the tests of the page in a browser are skipped;" \
        "on Debian \`sudo apt-get install chromium chromium-driver\` brings both"
fi
exit 0
