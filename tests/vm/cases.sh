# shellcheck shell=bash
# Named test cases, one process each, for the suites that run in the guest, and those of
# tests/ceph, which run beside a cluster.
#
#   run_case NAME [SECONDS]   runs the function NAME under `set -e` and prints
#                             "ok NAME" or "not ok NAME" with the end of its log
#   skip_case NAME REASON     prints "skipped NAME: REASON"; never counted as passed
#   finish                    prints "N passed, M failed[, K skipped]"; exits 1
#                             if any case failed or none ran
#
# A function `after_case`, where there is one, runs after each case, whatever
# came of it. ONLY (patterns, with | between them) chooses cases by name. LOG is
# the transcript, with the time of each command.
#
# A case is a copy of this shell. With CASE_SETUP it is a new one that sources this
# file first: then $$ differs from case to case.

export PS4='+ ${EPOCHREALTIME} '
passed=0 failed=0 skipped=0
CASE_SECONDS_MAX=${CASE_SECONDS_MAX:-180}
LOG=${LOG:-/dev/null}

note() { printf '# %s\n' "$*" | tee -a "$LOG"; }

# What the kernel knows about a case that hangs: blocked tasks and the log's end. Only the guest's own is asked.
kernel_view() {
    [ -n "${LINUX_VM-}" ] || return 0
    echo w >/proc/sysrq-trigger
    dmesg | tail -n 40
}

# chosen NAME: ONLY has a pattern for it, or nothing.
chosen() {
    # shellcheck disable=SC2053
    [[ $1 == @(${ONLY:-*}) ]]
}

run_case() {
    local name=$1 seconds=${2:-$CASE_SECONDS_MAX} log pid timer ended='' rc=0 started=$SECONDS late=''
    chosen "$name" || return 0
    log=$(mktemp)
    printf '\n=== %s\n' "$name" >>"$LOG"
    # A process group of its own, so that everything a late case started can be ended.
    if [ -n "${CASE_SETUP-}" ]; then
        # shellcheck disable=SC2016,SC2046
        export -f $(compgen -A function)
        setsid bash -c 'set -euo pipefail; . "$1"; set -x; "$2"' bash "$CASE_SETUP" "$name" >"$log" 2>&1 &
        pid=$!
    else
        set -m
        ( set -euo pipefail; set -x; "$name" ) >"$log" 2>&1 &
        pid=$!
        set +m
    fi
    sleep "$seconds" &
    timer=$!
    wait -n -p ended $pid $timer || rc=$?
    if [ "$ended" = $timer ]; then
        rc=0 late=" (still running after $seconds s)"
        kernel_view >>"$log" 2>&1
        kill -KILL -- -$pid 2>/dev/null
        sleep 1
        # A process stuck in the kernel cannot be killed, and is not waited for.
        if kill -0 $pid 2>/dev/null; then rc=125; else wait $pid 2>/dev/null || rc=$?; fi
    else
        kill $timer 2>/dev/null
        wait $timer 2>/dev/null
    fi
    cat "$log" >>"$LOG"
    if declare -F after_case >/dev/null; then
        ( set -x; after_case ) >>"$LOG" 2>&1
    fi
    if [ $rc = 0 ] && [ -z "$late" ]; then
        passed=$((passed + 1))
        echo "ok $name ($((SECONDS - started)) s)" | tee -a "$LOG"
    else
        failed=$((failed + 1))
        echo "not ok $name$late: exit status $rc" | tee -a "$LOG"
        tail -n 30 "$log" | sed 's/^/# /'
        [ -z "${LINUX_VM-}" ] || dmesg | tail -n 10 | sed 's/^/# kernel: /'
    fi
    rm -f "$log"
}

skip_case() {
    chosen "$1" || return 0
    skipped=$((skipped + 1))
    echo "skipped $1: $2" | tee -a "$LOG"
}

finish() {
    local tail=''
    [ $skipped = 0 ] || tail=", $skipped skipped"
    echo "$passed passed, $failed failed$tail" | tee -a "$LOG"
    [ $failed = 0 ] && [ $passed -gt 0 ]
    exit
}

# fail MESSAGE...: ends the case.
fail() { echo "FAILED: $*" >&2; exit 1; }

# equal WHAT GOT WANTED
equal() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }

# refused STATUS COMMAND...: the command must fail and its output must match STATUS.
refused() {
    local status=$1 output rc=0
    shift
    output=$("$@" 2>&1) || rc=$?
    printf '%s\n' "$output"
    [ $rc != 0 ] || fail "accepted, but should be refused: $*"
    grep -qiE -- "$status" <<<"$output" || fail "refused, but not with '$status': $*"
}

# pause SECONDS: as sleep, but starts no process: in an emulated machine that takes long.
pause() {
    local -
    set +x
    # Nobody writes to this pipe.
    [ -n "${silence-}" ] || exec {silence}<> <(:)
    read -rt "$1" -u "$silence" || true
}

# eventually SECONDS COMMAND...: polls until the command succeeds.
eventually() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || fail "not within the time given: $*"
        pause 0.1
    done
}
