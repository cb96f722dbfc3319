#!/bin/sh
# Chromium and its driver for the browser tests: Debian's, installed where they are missing and
# that is allowed. One line and exit code 1 where there is no browser to be had.
have() { command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; }
have && exit 0
why=""
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Debian's chromium and chromium-driver …"
    export DEBIAN_FRONTEND=noninteractive
    packages="chromium chromium-driver fonts-liberation"
    log=$(mktemp)
    { apt-get install -qq -y --no-install-recommends $packages ||
        { apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; }; } \
        >"$log" 2>&1
    have && { rm -f "$log"; exit 0; }
    why=" (apt-get: $(tail -n 1 "$log"))"
    rm -f "$log"
fi
echo "make test-browser: no browser: install Debian's chromium and chromium-driver$why" >&2
exit 1
