# shellcheck shell=bash
# What a case's own process sources: a folder of its own, and an end that leaves nothing running.
# shellcheck source=tests/ceph/suite.sh
. "$(dirname "${BASH_SOURCE[0]}")/suite.sh"
folder=$(mktemp -d)
mkdir "$folder/gateway"

leave() {
    local rc=$?
    set +eux
    if [ $rc != 0 ]; then
        echo "the gateway's log:"
        grep -E 'WARN|ERROR|weir_rbd|weir_gateway::serve' "$folder/gateway/weir.log" | grep -v 'memory at worst' | tail -n 15
    fi
    # A case may have stopped it.
    [ -z "${gateway_pid-}" ] || kill -CONT "$gateway_pid"
    gateway_stop
    jobs -p | xargs -r kill -KILL
    rm -rf "$folder"
    exit $rc
}
trap leave EXIT
