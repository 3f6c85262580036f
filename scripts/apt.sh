# Read by the scripts beside it: what they know of installing packages.

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

# Install packages, and say nothing.
install() {
    # No list of packages yet, or an old one, is the usual reason for a first no.
    { apt install -qq -y --no-install-recommends "$@" ||
        { apt update -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 &&
            apt install -qq -y --no-install-recommends "$@"; }; } >/dev/null 2>&1
}
