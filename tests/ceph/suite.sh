# shellcheck shell=bash
# What every suite and every case on a real cluster sources: a gateway that serves one image, loads on it through NVMe/TCP,
# and what the cluster is made to suffer.
#
#   CLUSTER   folder of the cluster        WEIR      path of the binary
#   POOL      where images are made        SEED      for everything random
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"
# shellcheck source=tests/vm/cases.sh
. "$here/../vm/cases.sh"
CASE_SETUP=$here/case.sh
weir=$WEIR
SAID=${SAID:-$(mktemp)}
export SAID CLUSTER WEIR POOL SEED LOG CEPH_CONF=$CLUSTER/ceph.conf
NQN=nqn.2026-01.org.example:ceph

cluster() {
    local command=$1
    shift
    "$root/scripts/ceph-cluster" "$command" "$CLUSTER" "$@"
}

# ceph_says ARG...: what the cluster answers, in reasonable time.
ceph_says() { timeout 60 ceph --connect-timeout 20 "$@"; }

# ------------------------------------------------------------ a gateway --

# image NAME MIB: a new image, in a namespace of the case's own.
image() {
    images=$POOL/$1-$$
    rbd namespace create "$images"
    rbd create "$images/$1" --size "${2}M"
}

# serve NAME [PARAMETERS]: a gateway that serves an image to any host, at $port.
serve() {
    port=$(free_port)
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

# weir_url [PARAMETERS]: of the namespace, for Weir's own initiator. Its time-out is longer than what the gateway waits.
weir_url() { printf 'nvme+tcp://127.0.0.1:%s/%s?nsid=1&kato=2s&io_timeout=120s%s' "$port" $NQN "${1:+&$1}"; }

# load SECONDS NAME [ARG...]: writes and reads that are checked, with the result in $folder/NAME.json.
load() {
    local seconds=$1 name=$2
    shift 2
    "$weir" bench "$(weir_url)" --destroy-data "$(weir_url)" --verify --json --random --block-size 4k --read-percent 50 --queues 2 \
        --queue-depth 8 --range 32M --seed "$SEED" --duration "${seconds}s" "$@" >"$folder/$name.json"
}

# under_load NAME: waits until the load that was started before is at it.
under_load() {
    eventually 30 logged 'connected .*queue=2 '
    sleep 2
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

# speed NAME: requests per second of a short load for which nothing happens.
speed() {
    load 3 "$1"
    whole "$1"
    without_errors "$1"
    result "$1" .total.iops
}

# say_speed BEFORE AFTER: and refuses what is not even near it. (Others use this machine too.)
say_speed() {
    say_of_case "speed before: $1 requests/s, afterwards: $2 requests/s"
    [ $((${2%.*} * 3)) -gt "${1%.*}" ] || fail "it is slow afterwards: $2 requests/s instead of $1"
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

osd_is_down() { ceph_says osd dump --format json | jq -e ".osds[] | select(.osd == $1) | .up == 0" >/dev/null; }
is_clean() { cluster wait --timeout "${1:-120}"; }
