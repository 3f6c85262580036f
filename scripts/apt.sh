# Functions for the other scripts: install packages with apt-get.

# Call apt-get without a password prompt; fail if that is not possible.
apt() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null &&
            sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

# Install packages without output.
install() {
    # The first attempt usually fails because the package list is missing or old.
    { apt install -qq -y --no-install-recommends "$@" ||
        { apt update -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 &&
            apt install -qq -y --no-install-recommends "$@"; }; } >/dev/null 2>&1
}
