# shellcheck shell=bash
# The target under test, started inside the guest: Weir's gateway, or the
# kernel's own (nvmet), against which the suites themselves are proven.
#
#   TARGET    weir | nvmet        WEIR      path of the binary
#
# Two subsystems: $NQN, open to any host, with namespace 1 of 512-byte blocks
# ($ONE_MIB) and namespace 2 of 4096-byte blocks ($TWO_MIB); and $NQN_CLOSED,
# for $HOSTNQN_FRIEND alone. The files lie in $STORE, a RAM disk with ext4.

ADDRESS=127.0.0.1
PORT=4420
NQN=nqn.2026-01.org.example:open
NQN_CLOSED=nqn.2026-01.org.example:closed
HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:6c5d0a52-3a1e-4d7c-9e2e-0d6c1c0f0001
HOSTID=6c5d0a52-3a1e-4d7c-9e2e-0d6c1c0f0001
HOSTNQN_FRIEND=nqn.2014-08.org.nvmexpress:uuid:6c5d0a52-3a1e-4d7c-9e2e-0d6c1c0f0002
HOSTID_FRIEND=6c5d0a52-3a1e-4d7c-9e2e-0d6c1c0f0002
ONE_MIB=320     # the least that mkfs.xfs takes is 300
TWO_MIB=48
STORE=${STORE:-/srv/store}
RUN=/run/target
NVMET=/sys/kernel/config/nvmet
SERVE_SECONDS_MAX=120

store_create() {
    modprobe brd rd_nr=4 rd_size=$((640 * 1024))
    # shellcheck disable=SC2086
    mkfs.ext4 -q -E nodiscard ${STORE_INODES:+-N $STORE_INODES} /dev/ram0
    mkdir -p "$STORE" $RUN
    mount "${1:-/dev/ram0}" "$STORE"
}

target_start() { "${TARGET}_create"; }

# ----------------------------------------------------------------- weir --

weir() { "$WEIR" --socket $RUN/weir.sock "$@"; }

weir_config() {         # DIR, for state and socket
    cat <<TOML
reactors = 2
state = "${STATE:-$1/state.json}"

[control]
socket = "$1/weir.sock"
TOML
}

weir_serve() {
    weir_config $RUN >$RUN/weir.toml
    rm -f $RUN/weir.pid $RUN/weir.rc $RUN/weir.sock
    # The exit status is kept: the case that stops it may not be the one that started it.
    (
        rc=0
        "$WEIR" serve --config $RUN/weir.toml &
        echo $! >$RUN/weir.pid
        wait $! || rc=$?
        echo $rc >$RUN/weir.rc
    ) >>"${GATEWAY_LOG:-$RUN/weir.log}" 2>&1 &
    local until=$((SECONDS + SERVE_SECONDS_MAX))
    until [ -S $RUN/weir.sock ] && weir status >/dev/null 2>&1; do
        if [ -e $RUN/weir.rc ] || [ $SECONDS -ge $until ]; then
            echo "weir serve did not start:" >&2
            tail -n 20 "${GATEWAY_LOG:-$RUN/weir.log}" >&2
            return 1
        fi
        pause 0.05
    done
}

weir_create() {
    weir_serve &&
    weir volume add one "file:$STORE/one?size=${ONE_MIB}M&block_size=512" &&
    weir volume add two "file:$STORE/two?size=${TWO_MIB}M&block_size=4096" &&
    weir volume add three "file:$STORE/three?size=8M" &&
    weir subsystem add $NQN --allow-any-host &&
    weir namespace add $NQN one --nsid 1 &&
    weir namespace add $NQN two --nsid 2 &&
    weir subsystem add $NQN_CLOSED &&
    weir host add $HOSTNQN_FRIEND &&
    weir subsystem allow-host $NQN_CLOSED $HOSTNQN_FRIEND &&
    weir namespace add $NQN_CLOSED three --nsid 1 &&
    weir listener add $ADDRESS:$PORT
}

weir_end() {            # SIGNAL
    kill "-$1" "$(<$RUN/weir.pid)"
    local until=$((SECONDS + SERVE_SECONDS_MAX))
    until [ -s $RUN/weir.rc ]; do
        if [ $SECONDS -ge $until ]; then
            echo "weir serve did not end on SIG$1" >&2
            return 1
        fi
        pause 0.05
    done
}

weir_kill() { weir_end KILL; }

weir_restart() { weir_serve; }

weir_stop() {
    weir_end TERM || return
    if [ "$(<$RUN/weir.rc)" != 0 ]; then
        echo "weir serve ended with status $(<$RUN/weir.rc)" >&2
        return 1
    fi
}

# What weir_create made, so that it can be made anew.
weir_forget() { rm -f "$STORE"/{one,two,three} "${STATE:-$RUN/state.json}"; }

weir_resize() {
    local names=(- one two)
    weir volume resize "${names[$1]}" "${2}M"
}

weir_namespace_add() {
    weir volume add "extra$1" "file:$STORE/extra$1?size=16M" &&
    weir namespace add $NQN "extra$1" --nsid "$1"
}

weir_namespace_remove() {
    weir namespace remove $NQN "$1" && weir volume remove "extra$1"
}

weir_configuration() {
    local what
    for what in volume subsystem namespace host listener; do
        echo "$what:"
        weir $what list --json
    done
}

# ---------------------------------------------------------------- nvmet --

nvmet_namespace() {     # SUBSYSTEM NSID DEVICE UUID
    local namespace=$NVMET/subsystems/$1/namespaces/$2
    mkdir "$namespace"
    echo "$3" >"$namespace/device_path"
    echo "$4" >"$namespace/device_uuid"
    echo 1 >"$namespace/enable"
}

nvmet_create() {
    modprobe -a nvmet-tcp loop
    truncate -s "${ONE_MIB}M" "$STORE/one"
    truncate -s "${TWO_MIB}M" "$STORE/two"
    truncate -s 8M "$STORE/three"
    mkdir $NVMET/subsystems/$NQN $NVMET/subsystems/$NQN_CLOSED $NVMET/ports/1
    echo 1 >$NVMET/subsystems/$NQN/attr_allow_any_host
    mkdir $NVMET/hosts/$HOSTNQN_FRIEND
    ln -s $NVMET/hosts/$HOSTNQN_FRIEND $NVMET/subsystems/$NQN_CLOSED/allowed_hosts/
    # A file becomes a namespace of 4096-byte blocks; 512 needs a loop device.
    nvmet_namespace $NQN 1 "$(losetup -f --show "$STORE/one")" 11111111-1111-4111-8111-111111111111
    nvmet_namespace $NQN 2 "$STORE/two" 22222222-2222-4222-8222-222222222222
    nvmet_namespace $NQN_CLOSED 1 "$STORE/three" 33333333-3333-4333-8333-333333333333
    echo tcp >$NVMET/ports/1/addr_trtype
    echo ipv4 >$NVMET/ports/1/addr_adrfam
    echo $ADDRESS >$NVMET/ports/1/addr_traddr
    echo $PORT >$NVMET/ports/1/addr_trsvcid
    nvmet_restart
}

# The nearest that nvmet has to dying: its port goes, and every connection with it.
nvmet_kill() { rm $NVMET/ports/1/subsystems/*; }
nvmet_stop() { nvmet_kill; }

nvmet_forget() {
    local namespace device
    for namespace in $NVMET/subsystems/*/namespaces/*; do
        echo 0 >"$namespace/enable"
        device=$(<"$namespace/device_path")
        rmdir "$namespace"
        case $device in /dev/loop*) losetup -d "$device" ;; esac
    done
    rm $NVMET/subsystems/*/allowed_hosts/*
    rmdir $NVMET/ports/1 $NVMET/subsystems/* $NVMET/hosts/*
    rm -f "$STORE"/{one,two,three}
}

nvmet_restart() {
    ln -s $NVMET/subsystems/$NQN $NVMET/ports/1/subsystems/
    ln -s $NVMET/subsystems/$NQN_CLOSED $NVMET/ports/1/subsystems/
}

nvmet_resize() {
    local files=(- one two)
    truncate -s "${2}M" "$STORE/${files[$1]}"
    [ "$1" = 2 ] || losetup -c "$(<$NVMET/subsystems/$NQN/namespaces/"$1"/device_path)"
    echo 1 >"$NVMET/subsystems/$NQN/namespaces/$1/revalidate_size"
}

nvmet_namespace_add() {
    truncate -s 16M "$STORE/extra$1"
    nvmet_namespace $NQN "$1" "$STORE/extra$1" "44444444-4444-4444-8444-4444444444$1"
}

nvmet_namespace_remove() {
    echo 0 >"$NVMET/subsystems/$NQN/namespaces/$1/enable"
    rmdir "$NVMET/subsystems/$NQN/namespaces/$1"
}

nvmet_configuration() { (cd $NVMET && find subsystems ports hosts | sort); }
