#!/usr/bin/env bash
# Makes .venv from requirements.lock (exact versions, checked hashes) and installs RaftMQ into it in place; with the
# argument `demo` only what the demo needs (setup/demo.txt), which a run without it adds to.
# Needs Python 3.11 or newer; what Debian leaves out of it (venv) is installed when this runs as root, else named.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'set-up: %s\n' "$*"; }
die() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

# How long a Python takes for a little work of the broker's kind, in µs. Builds of one version differ by up to two times
# (profile-guided ones of distributions against ones made by version managers), and so does the broker.
speed() {
    "$1" - <<'EOF' 2>/dev/null
import timeit
work = "for i in range(200):\n key = ('topic', i & 7)\n seen[key] = seen.get(key, 0) + 1\n text = 'id-%d' % i"
print(int(min(timeit.repeat(work, "seen = {}", number=100, repeat=9)) * 1e6))
EOF
}

# Prints the fastest usable Python, one that has venv if there is any, or nothing. Running it decides: a name on PATH may
# be a shim that leads nowhere, and may hide the system's own.
find_python() {
    local wanted name took best=""
    for wanted in 'import ensurepip, venv' 'pass'; do
        for name in {,/usr/bin/}python3{.14,.13,.12,.11,} python; do
            if command -v "$name" >/dev/null 2>&1 &&
                "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 &&
                "$name" -c "$wanted" >/dev/null 2>&1; then
                took=$(speed "$name")
                best+="${took:-999999999} $("$name" -c 'import sys; print(sys.executable)')"$'\n'
            fi
        done
        if [ -n "$best" ]; then
            printf '%s' "$best" | sort -n | head -n 1 | cut -d' ' -f2-
            return
        fi
    done
}

# apt_install WHY PACKAGE...: installs as root on Debian and its kin, otherwise says what to run and ends.
apt_install() {
    local why=$1
    shift
    command -v apt-get >/dev/null 2>&1 || die "$why; install the equivalent of Debian's: $*"
    [ "$(id -u)" -eq 0 ] || die "$why; run: sudo apt-get install -y $*"
    say "$why; installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 || {
        apt-get update >/dev/null
        apt-get install -y --no-install-recommends "$@" >/dev/null
    }
}

python=$(find_python)
if [ -z "$python" ]; then
    found=$(command -v python3 >/dev/null 2>&1 && python3 --version 2>&1 || echo "no python3 at all")
    die "RaftMQ needs Python 3.11 or newer, and this machine has $found; on Debian 12 or newer: apt-get install -y python3 python3-venv"
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    # Debian names the package after the version; python3-venv is the one for its default Python.
    apt_install "Python $version at $python has no venv module" "python$version-venv"
    "$python" -c 'import ensurepip, venv' || die "venv is still missing after the installation; remove other Pythons from PATH or install python3-venv"
fi

say "Python $version ($python) into .venv"
# An environment of another Python, or one whose Python has gone, is of no use.
if [ -d .venv ] && ! .venv/bin/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
    rm -rf .venv
fi
if [ "${1:-}" = demo ]; then
    what="what the demo needs (half a minute the first time)" locked=.venv/.demo.lock
else
    what="the locked packages (a minute or two the first time)" locked=requirements.lock
fi
[ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv
rm -f .venv/.ready .venv/.demo

pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
say "installing $what"
[ "$locked" = requirements.lock ] || awk 'NR == FNR { named[$1]; next } /^[^ ]/ { split($1, part, "=="); kept = part[1] in named } kept' \
    setup/demo.txt requirements.lock >"$locked"
"${pip[@]}" install --require-hashes -r setup/pip.lock || die "pip could not be brought up to date: see its words above"
# PySpark is half of all there is, and comes beside the rest. pip would compile 5,000 modules one by one, for as long as it
# takes it to lay them down: those of the rest are compiled while the hot path is, and what remains by who imports it first.
install=("${pip[@]}" install --no-compile --use-pep517 --no-deps --no-build-isolation --require-hashes -r)
failed="the locked packages could not be installed: see pip's words above (no network, or no build for Python $version on this machine)"
awk '/^[^ ]/ { kept = /^pyspark==/ } kept' "$locked" >.venv/.spark.lock
awk '/^[^ ]/ { kept = !/^pyspark==/ } kept' "$locked" >.venv/.rest.lock
spark=
if [ -s .venv/.spark.lock ]; then
    "${install[@]}" .venv/.spark.lock &
    spark=$!
fi
# Ctrl-C does not reach what a script has in the background.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"${install[@]}" .venv/.rest.lock || die "$failed"
"${pip[@]}" install --no-deps --no-build-isolation -e . || die "RaftMQ itself could not be installed: see pip's words above"

.venv/bin/python -m compileall -q -x '/tests?/' .venv/lib/python*/site-packages >/dev/null 2>&1 &
compiled=$!
# RaftMQ does without.
.venv/bin/python -m setup.compile || say "the hot path could not be compiled, it runs as Python: see above"
wait "$compiled" || true # RaftMQ does without this, too
[ -z "$spark" ] || wait "$spark" || die "$failed"

if [ "$locked" != requirements.lock ]; then
    touch .venv/.demo
    say "ready for the demo"
    exit
fi

# The official C++ client that judges us brings its library along, but not the C++ runtime below it.
if ! .venv/bin/python -c 'import rocketmq.ffi' >/dev/null 2>&1; then
    apt_install "the official C++ client lacks system libraries" libstdc++6 zlib1g
    .venv/bin/python -c 'import rocketmq.ffi' || die "the official C++ client still cannot be loaded: see above"
fi

touch .venv/.demo .venv/.ready
say "ready: .venv/bin/raftmq --help"
