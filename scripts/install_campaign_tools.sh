#!/bin/sh
# Install the Debian package of each program that is missing: PROGRAM=PACKAGE ...
# Exit code 0: every program is there. The campaign takes another way, and names it, after any other exit code.
missing=""
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || missing="$missing ${pair#*=}"
done
[ -z "$missing" ] && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 1
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # several packages
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && exit 0
apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1
