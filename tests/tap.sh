# TAP for shell scripts: to be sourced.
tap_count=0 tap_failed=0

tap_ok() { # DESCRIPTION
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1"
}

tap_not_ok() { # DESCRIPTION [FILE with what was printed]
    tap_count=$((tap_count + 1)) tap_failed=$((tap_failed + 1))
    echo "not ok $tap_count - $1"
    if [ $# -gt 1 ]; then sed 's/^/# /' "$2" | head -20; fi
}

tap_skip() { # DESCRIPTION
    tap_count=$((tap_count + 1))
    echo "ok $tap_count # SKIP $1"
}

# Ok if the command succeeds; its output is shown if it does not.
tap_check() { # DESCRIPTION COMMAND...
    tap_name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then tap_ok "$tap_name"; else tap_not_ok "$tap_name" "$tmp/out"; fi
}

tap_done() {
    echo "1..$tap_count"
    [ "$tap_failed" -eq 0 ]
    exit
}

has() {
    command -v "$1" >/dev/null 2>&1
}

tmp=$(mktemp -d "${TMPDIR:-/tmp}/mirt_test.XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
