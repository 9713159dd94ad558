#!/usr/bin/env bash
# Installs what tests use beside Python packages: Java for Spark, Chromium for the report, and what faults are made with.
# As root on Debian and its kin; elsewhere it names what is missing, and the tests that need it say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'set-up: %s\n' "$*"; }

JAVA_MIN=17

java_is_new_enough() {
    local version
    version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge "$JAVA_MIN" ]
}

# Command or file → Debian's package.
missing=()
java_is_new_enough || missing+=(openjdk-17-jre-headless)
command -v chromium >/dev/null 2>&1 || missing+=(chromium)
command -v nft >/dev/null 2>&1 || [ -x /usr/sbin/nft ] || missing+=(nftables)
command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || missing+=(iproute2)
command -v mkfs.ext4 >/dev/null 2>&1 || [ -x /usr/sbin/mkfs.ext4 ] || missing+=(e2fsprogs)

if [ "${#missing[@]}" -gt 0 ]; then
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
        say "installing for the tests (a minute or two the first time): ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update >/dev/null || say "the package lists could not be brought up to date"
        for package in "${missing[@]}"; do
            apt-get install -y --no-install-recommends "$package" >/dev/null 2>&1 ||
                say "$package could not be installed: tests that need it are skipped"
        done
    else
        say "tests that need these are skipped; on Debian: sudo apt-get install -y ${missing[*]}"
    fi
fi

touch .venv/.tools
