# shellcheck shell=bash
# What every suite and every case on a real cluster sources: a gateway that serves one image, loads on it through NVMe/TCP,
# and what the cluster is made to suffer.
#
#   CLUSTER   folder of the cluster        WEIR      path of the binary
#   POOL      where images are made        SEED      for everything random
#   UNDO      a file with what after_case tells the cluster
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"
# A case waits for what it looks for, and judges no time: these limits end cases that hang.
CASE_SECONDS_MAX=1800
WAIT_SECONDS_MAX=300
# shellcheck source=tests/vm/cases.sh
. "$here/../vm/cases.sh"
CASE_SETUP=$here/case.sh
weir=$WEIR
SAID=${SAID:-$(mktemp)}
export SAID UNDO CLUSTER WEIR POOL SEED LOG CEPH_CONF=$CLUSTER/ceph.conf
NQN=nqn.2026-01.org.example:ceph

# await COMMAND...: polls until the command succeeds, with time for others in between: asking the cluster costs half a second's work.
await() {
    local until=$((SECONDS + WAIT_SECONDS_MAX))
    until "$@"; do
        [ $SECONDS -lt $until ] || fail "not within the time given: $*"
        sleep 0.2
    done
}

cluster() {
    local command=$1
    shift
    "$root/scripts/ceph-cluster" "$command" "$CLUSTER" "$@"
}

# ceph_says ARG...: what the cluster answers.
ceph_says() { timeout $WAIT_SECONDS_MAX ceph --connect-timeout $WAIT_SECONDS_MAX "$@"; }

# undo ARG...: what the cluster is told after the case, however it ends.
undo() { printf '%s\n' "$*" >>"$UNDO"; }
# undone: the case has done so itself.
undone() { : >"$UNDO"; }

# set_for_case WHO OPTION VALUE: configures daemons until the case ends, and waits until the OSDs know.
set_for_case() {
    local osd
    undo config rm "$1" "$2"
    ceph_says config set "$1" "$2" "$3"
    for osd in 0 1; do await knows osd.$osd "$2" "$3"; done
}

# knows DAEMON OPTION VALUE
knows() { [[ $(ceph_says tell "$1" config get "$2" | jq -r --arg name "$2" '.[$name]') =~ ^$3(\.0*)?$ ]]; }

# Whatever a case left: the cluster is as it was, and whole.
after_case() {
    local -a told
    while read -ra told; do ceph_says "${told[@]}" </dev/null; done <"$UNDO"
    undone
    # An OSD that was taken for dead while the map calls it full does not come back before it is started again.
    cluster start || { cluster kill osd.0; cluster kill osd.1; cluster start; }
}

# ------------------------------------------------------------ a gateway --

# image NAME MIB: a new image, in a namespace of the case's own.
image() {
    images=$POOL/$1-$$
    rbd namespace create "$images"
    rbd create "$images/$1" --size "${2}M"
}

# serve NAME [PARAMETERS]: a gateway that serves an image to any host, at $port.
serve() {
    hold_port
    gateway_start "$folder/gateway"
    gateway volume add "$1" "rbd:$images/$1?conf=$CEPH_CONF${2:+&$2}"
    gateway subsystem add $NQN --allow-any-host
    gateway namespace add $NQN "$1"
    gateway listener add "127.0.0.1:$port"
}

# What the gateway says of a volume: `field NAME .status`.
field() { gateway volume show "$1" --json | jq -r "$2"; }
is_online() { [ "$(field "$1" .status)" = online ]; }
is_lost() { [ "$(field "$1" .report.lost)" = true ]; }
# trouble NAME: what is wrong with an image; nothing where that is nothing.
trouble() { gateway status --json | jq -r ".ceph.images[] | select(.volume == \"$1\") | .trouble // empty"; }
has_no_trouble() { [ -z "$(trouble "$1")" ]; }
# logged PATTERN: the gateway has said so.
logged() { grep -qE -- "$1" "$folder/gateway/weir.log"; }

# client_of NAME: the address of the client that watches an image, as blocklists take it.
client_of() { rbd status "$images/$1" --format json | jq -r '.watchers[0].address'; }

# watchers NAME: how many clients watch an image.
watchers() { rbd status "$images/$1" --format json | jq '.watchers | length'; }
has_watchers() { [ "$(watchers "$1")" = "$2" ]; }

# ----------------------------------------------------------------- loads --

# weir_url: of the namespace, for Weir's own initiator. Its time-out is longer than what the gateway waits.
weir_url() { printf 'nvme+tcp://127.0.0.1:%s/%s?nsid=1&kato=2s&io_timeout=900s' "$port" $NQN; }

# For gateways whose hosts only wait while something is gone, also on a machine that stands still for a while.
PATIENT='io_timeout=600s'

# begin NAME ARG...: a load that goes on until end_load; its result will be in $folder/NAME.json.
begin() {
    local name=$1
    shift
    "$weir" bench "$(weir_url)" --json --random --seed "$SEED" --duration ${CASE_SECONDS_MAX}s "$@" >"$folder/$name.json" &
    load=$!
}

# load NAME: begins writes and reads that are checked, and waits until they are under way.
load() {
    begin "$1" --destroy-data "$(weir_url)" --verify --block-size 4k --read-percent 50 --queues 2 --queue-depth 8 --range 32M
    goes_on
}

# answered: how many requests of hosts the gateway has answered.
answered() { gateway latency --namespace $NQN 1 --json | jq '[.commands[].count] | add // 0'; }

# goes_on [COUNT]: waits until so many more requests of the load are answered.
goes_on() {
    local before
    await has_answered 0
    before=$(answered)
    await has_answered $((before + ${1:-300}))
}
has_answered() {
    kill -0 "$load" || fail "the load has ended"
    [ "$(answered)" -ge "$1" ]
}

# end_load: its status is that of the load.
end_load() {
    kill -TERM "$load" || fail "the load has ended"
    wait "$load"
}

# end_load_in_trouble NAME: requests may have failed, and so may the last reading of what was written: then that tells nothing.
end_load_in_trouble() {
    end_load || [ "$(result "$1" '.errors > 0 or (.verification | length) == 0')" = true ] || fail "the load $1 failed"
    whole "$1"
}

# works NAME: a load of which nothing fails.
works() {
    load "$1"
    end_load
    whole "$1"
    without_errors "$1"
}

# works_again NAME: loads until nothing of one fails. On a machine that stands still a request may take longer than the time-outs of the
# gateway, which are short in some cases. What is read must be right each time.
works_again() {
    local until=$((SECONDS + WAIT_SECONDS_MAX))
    while :; do
        load "$1"
        end_load_in_trouble "$1"
        if [ "$(result "$1" '.errors == 0 and (.verification | length) > 0')" = true ]; then return; fi
        [ $SECONDS -lt $until ] || fail "requests fail still: $(result "$1" .first_error)"
    done
}

# result NAME FILTER: of a load that has ended.
result() { jq -r "$2" "$folder/$1.json"; }

# verified NAME: all that it wrote was read once more at the end, and was as it should be.
verified() { equal "verification of $1" "$(result "$1" '[.verification[] | .ok and .whole] | all')" true; }

# whole NAME: and that was something.
whole() {
    verified "$1"
    [ "$(result "$1" .total.requests)" -gt 100 ] || fail "the load $1 did next to nothing"
}

# without_errors NAME
without_errors() { equal "failed requests of $1" "$(result "$1" .errors)" 0; }

# stall NAME: the longest that a request took, in milliseconds.
stall() { result "$1" '.total.latency_ns.max / 1e6 | floor'; }

# ---------------------------------------------------- speed (--long alone) --

# How often each way is measured at a time, after once that does not count.
ROUNDS=7
# How often it may be tried afterwards.
TRIES_MAX=3

# window URL: requests per second of a short load for which nothing happens.
window() {
    "$weir" bench "$1" --destroy-data "$1" --json --random --block-size 4k --read-percent 50 --queues 2 --queue-depth 8 --range 32M \
        --seed "$SEED" --duration 2s >"$folder/window.json"
    without_errors window
    result window .total.iops
}

# pace NAME: requests per second through the gateway, and of librbd alone in a process that is new each time, on an image beside it, by turns:
# round by round in $folder/NAME.pace. What else the machine and the cluster do at the time, both meet.
pace() {
    local round through alone
    rbd info "$images/beside" >/dev/null 2>&1 || rbd create "$images/beside" --size 64M
    for ((round = 0; round <= ROUNDS; round++)); do
        through=$(window "$(weir_url)")
        alone=$(window "rbd:$images/beside?conf=$CEPH_CONF")
        [ $round = 0 ] || echo "[$through, $alone]"
    done >"$folder/$1.pace"
}

# of_pace NAME FILTER: $through, $alone and $ratio are sorted.
of_pace() {
    jq -rs "def median: .[(length - 1) / 2 | floor];
        (map(.[0]) | sort) as \$through | (map(.[1]) | sort) as \$alone | (map(.[0] / .[1]) | sort) as \$ratio | $2" "$folder/$1.pace"
}

# shellcheck disable=SC2016
say_pace() {
    say_of_case "$1: $(of_pace "$1" '($through | median | floor)') requests/s through the gateway, $(of_pace "$1" '($alone | median | floor)') of librbd alone;" \
        "ratio $(of_pace "$1" '$ratio | map(. * 100 | floor / 100) | "\(median) (\(first) to \(last))"')"
}

# From what part of the former median on it is as fast as before. By chance two medians lie up to a sixth apart, where others use the machine too.
AS_FAST=0.8

# back_to_pace: as fast as `pace before` has found it, beside librbd at the same time. A few tries are no way out for a gateway that stays slow.
back_to_pace() {
    local try least
    say_pace before
    least=$(of_pace before "(\$ratio | median) * $AS_FAST")
    for ((try = 1; try <= TRIES_MAX; try++)); do
        pace after
        say_pace after
        if [ "$(of_pace after "(\$ratio | median) >= $least")" = true ]; then return; fi
    done
    fail "the gateway is slow afterwards: $(tail -n "$((TRIES_MAX + 1))" "$SAID")"
}

# What a case measured is shown though it passed.
say_of_case() { printf '%s\n' "$*" >>"$SAID"; }

# try NAME [SECONDS]: as run_case, with what it measured.
try() {
    : >"$SAID"
    run_case "$@"
    sed 's/^/#   /' "$SAID" | tee -a "$LOG"
    rm -f "$SAID"
}

# long NAME: a case that is tried with --long alone.
long() { [ -z "${LONG-}" ] || try "$@"; }

# ------------------------------------------------------------ the cluster --

osd_is() { ceph_says osd dump --format json | jq -e ".osds[] | select(.osd == $1) | .up == $2" >/dev/null; }
osd_is_down() { osd_is "$1" 0; }
osd_is_up() { osd_is "$1" 1; }
is_clean() { cluster wait; }
