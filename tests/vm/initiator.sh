# shellcheck shell=bash
# The Linux kernel's NVMe/TCP initiator, through nvme-cli and sysfs.

# connect [ARG...]: connects to $NQN and waits for its two namespaces.
connect() {
    connect_only -n $NQN -q $HOSTNQN -I $HOSTID "$@"
    eventually 30 namespace 1
    eventually 30 namespace 2
}

connect_only() {
    nvme connect -t tcp -a $ADDRESS -s $PORT --reconnect-delay=1 --ctrl-loss-tmo=600 "$@"
}

# connect_again [OPTION...]: one more controller of the same host, at the same
# address. nvme-cli refuses that, whatever it is told; the kernel does not.
connect_again() {
    local options=transport=tcp,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN,hostnqn=$HOSTNQN,hostid=$HOSTID
    printf %s "$options,duplicate_connect,reconnect_delay=1,ctrl_loss_tmo=600${1:+,$1}" >/dev/nvme-fabrics
}

disconnect() { nvme disconnect -n "${1:-$NQN}"; }

# controller [NQN]: the name of the controller (nvme0) that is connected to it.
controller() {
    local - file
    set +x
    for file in /sys/class/nvme/*/subsysnqn; do
        [ "$(cat "$file" 2>/dev/null)" = "${1:-$NQN}" ] || continue
        basename "$(dirname "$file")"
        return
    done
    return 1
}

# namespace NSID [NQN]: the block device of a namespace, once the kernel has it.
namespace() {
    local - block
    set +x
    for block in /sys/block/nvme*; do
        # With multipath the parts (nvme0c0n1) are hidden: no device node.
        [ "$(cat "$block/nsid" 2>/dev/null)" = "$1" ] || continue
        [ "$(cat "$block/device/subsysnqn" 2>/dev/null)" = "${2:-$NQN}" ] || continue
        [ -b "/dev/${block##*/}" ] || continue
        echo "/dev/${block##*/}"
        return
    done
    return 1
}

no_namespace() { ! namespace "$@" >/dev/null; }

# size_is DEVICE MIB
size_is() { [ "$(blockdev --getsize64 "$1")" = $(($2 * 1024 * 1024)) ]; }

# Whatever a case left: mounts, processes, connections.
initiator_cleanup() {
    mountpoint -q /mnt/host && { umount /mnt/host || umount -l /mnt/host; }
    nvme disconnect -n $NQN
    nvme disconnect -n $NQN_CLOSED
    true
}

# pattern FILE BYTES: bytes that are nowhere the same.
pattern() { head -c "$2" /dev/urandom >"$1"; }

# put DEVICE FILE OFFSET_BYTES; get DEVICE OFFSET_BYTES BYTES
# O_DIRECT: what is read comes from the target, not from this host's cache.
put() { dd if="$2" of="$1" bs=4096 seek=$(($3 / 4096)) oflag=direct conv=notrunc status=none; }
get() { dd if="$1" bs=4096 skip=$(($2 / 4096)) count=$(($3 / 4096)) iflag=direct status=none; }

# fio_verified DEVICE [ARG...]: random writes, read back and checked by CRC.
fio_verified() {
    local device=$1
    shift
    fio --name=verify --filename="$device" --rw=randwrite --direct=1 --ioengine=libaio \
        --verify=crc32c --verify_fatal=1 --randseed="${SEED:-1}" "$@"
}
