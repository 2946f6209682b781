# shellcheck shell=bash
# The Linux kernel's NVMe/TCP initiator, through nvme-cli and sysfs.

# connect [ARG...]: connects to $NQN and waits for its two namespaces.
connect() {
    connect_only -n $NQN -q $HOSTNQN -I $HOSTID "$@"
    eventually 60 namespace 1
    eventually 60 namespace 2
}

# connect_only ARG...: a machine that stands still for some seconds loses no connection, unless a case asks for a shorter -k.
connect_only() {
    nvme connect -t tcp -a $ADDRESS -s $PORT --reconnect-delay=1 --ctrl-loss-tmo=600 -k 60 "$@"
}

# connect_again [OPTION...]: one more controller of the same host, at the same
# address. nvme-cli refuses that, whatever it is told; the kernel does not.
connect_again() {
    local options=transport=tcp,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN,hostnqn=$HOSTNQN,hostid=$HOSTID
    printf %s "$options,duplicate_connect,reconnect_delay=1,ctrl_loss_tmo=600${1:+,$1}" >/dev/nvme-fabrics
}

disconnect() { nvme disconnect -n "${1:-$NQN}"; }

# Of what is polled, as little as possible starts a process: in an emulated machine that takes long.

# read_value FILE: sets `value` to the first line; to nothing where there is none.
read_value() { value=''; { IFS= read -r value <"$1"; } 2>/dev/null || true; }

# controller [NQN]: the name of the controller (nvme0) that is connected to it.
controller() {
    local - file value
    set +x
    for file in /sys/class/nvme/*/subsysnqn; do
        read_value "$file"
        [ "$value" = "${1:-$NQN}" ] || continue
        file=${file%/*}
        echo "${file##*/}"
        return
    done
    return 1
}

# is_live CONTROLLER
is_live() {
    local - value
    set +x
    read_value "/sys/class/nvme/$1/state"
    [ "$value" = live ]
}

# namespace NSID [NQN]: the block device of a namespace, once the kernel has it.
namespace() {
    local - block value
    set +x
    for block in /sys/block/nvme*; do
        # With multipath the parts (nvme0c0n1) are hidden: no device node.
        read_value "$block/nsid"
        [ "$value" = "$1" ] || continue
        read_value "$block/device/subsysnqn"
        [ "$value" = "${2:-$NQN}" ] || continue
        [ -b "/dev/${block##*/}" ] || continue
        echo "/dev/${block##*/}"
        return
    done
    return 1
}

no_namespace() { ! namespace "$@" >/dev/null; }

# size_is DEVICE MIB
size_is() { [ "$(blockdev --getsize64 "$1")" = $(($2 * 1024 * 1024)) ]; }

# write_count DEVICE: sets `writes` to those of all its paths; the head of a multipath device counts nothing itself.
write_count() {
    local name=${1#/dev/} file value fields
    writes=0
    # nvme0n1 has the paths nvme0c0n1, nvme0c1n1 ...
    for file in "/sys/block/$name/stat" "/sys/block/${name%n*}"c*"n${name##*n}/stat"; do
        read_value "$file"
        read -ra fields <<<"$value"
        writes=$((writes + ${fields[4]:-0}))
    done
}

# under_load DEVICE: waits until the load on it, started before, writes. In an
# emulated machine that can take seconds.
under_load() {
    local - before writes until=$((SECONDS + 120))
    set +x
    write_count "$1"
    before=$writes
    until [ "$writes" -gt $((before + 16)) ]; do
        [ $SECONDS -lt $until ] || fail "no load on $1"
        pause 0.1
        write_count "$1"
    done
}

# until_told COMMAND...: a load, again and again until `tell`, however long what happens to it takes.
until_told() {
    rm -f /tmp/told
    until [ -e /tmp/told ]; do "$@"; done
}
tell() { touch /tmp/told; }

# Deletes every controller of a network transport; the machine's own drive stays.
delete_controllers() {
    local file value
    for file in /sys/class/nvme/*/transport; do
        read_value "$file"
        case $value in
            tcp|rdma|loop) echo 1 >"${file%/*}/delete_controller" || true ;;
        esac
    done
}

# Whatever a case left: mounts, processes, connections.
initiator_cleanup() {
    ! grep -q ' /mnt/host ' /proc/self/mounts || umount /mnt/host || umount -l /mnt/host
    delete_controllers
}

# pattern FILE BYTES: bytes that are nowhere the same.
pattern() { head -c "$2" /dev/urandom >"$1"; }

# put DEVICE FILE OFFSET_BYTES [BYTES_AT_ONCE]; get DEVICE OFFSET_BYTES BYTES [BYTES_AT_ONCE]
# O_DIRECT: what is read comes from the target, not from this host's cache.
put() { dd if="$2" of="$1" bs="${4:-4096}" seek=$(($3 / ${4:-4096})) oflag=direct conv=notrunc status=none; }
get() { dd if="$1" bs="${4:-4096}" skip=$(($2 / ${4:-4096})) count=$(($3 / ${4:-4096})) iflag=direct status=none; }

# fio ARG...: without SIGPIPE. Linux sends a command in the process that submits it, without MSG_NOSIGNAL: where the
# connection has just gone, that process is sent SIGPIPE, and dies of it (seen with 6.12, in nvme_tcp_try_send_cmd_pdu).
fio() { env --ignore-signal=PIPE fio "$@"; }

# fio_verified DEVICE [ARG...]: random writes, read back and checked by CRC.
fio_verified() {
    local device=$1
    shift
    fio --name=verify --filename="$device" --allow_file_create=0 --rw=randwrite --direct=1 --ioengine=libaio \
        --verify=crc32c --verify_fatal=1 --randseed="${SEED:-1}" "$@"
}

# files_survive MKFS FSCK ATTACH DETACH [ATTACH'S ARG...]: files written to a file system are there when the host comes
# back to it. ATTACH sets `device`.
files_survive() {
    local make=$1 check=$2 attach=$3 detach=$4 device i sums
    shift 4
    $attach "$@"
    $make "$device"
    mkdir -p /mnt/host
    mount "$device" /mnt/host
    mkdir -p /mnt/host/a/b
    for i in 1 511 512 4097 65536 999999 4194304; do
        pattern "/mnt/host/a/file-$i" "$i"
        dd if="/mnt/host/a/file-$i" of="/mnt/host/a/b/copy-$i" bs=37k conv=fsync status=none
    done
    fio --name=mapped --directory=/mnt/host/a --rw=randwrite --bsrange=512-64k --bs_unaligned=1 \
        --size=2M --ioengine=psync --fsync=16 --verify=crc32c --verify_fatal=1 --randseed=1
    sync
    sums=$(mktemp)
    (cd /mnt/host && find . -type f -exec sha256sum {} +) >"$sums"
    [ "$(wc -l <"$sums")" -ge 15 ] || fail "not every file was written"
    umount /mnt/host
    $detach
    $attach "$@"
    $check "$device"
    mount -o ro "$device" /mnt/host
    (cd /mnt/host && sha256sum --quiet -c "$sums")
    umount /mnt/host
}

# blocks_at_most COUNT FILE: of 512 bytes.
blocks_at_most() { [ "$(stat -c %b "$2")" -lt "$1" ]; }

# space_is_returned DEVICE FILE: what fstrim gives back on a file system there is gone from the file that the device lies on.
space_is_returned() {
    local before
    mkfs.ext4 -q -F "$1"
    mkdir -p /mnt/host
    # Else the kernel writes inode tables meanwhile, and the store grows.
    mount -o noinit_itable "$1" /mnt/host
    pattern /mnt/host/file 16777216
    sync
    before=$(stat -c %b "$2")
    rm /mnt/host/file
    sync
    fstrim -v /mnt/host
    umount /mnt/host
    # At least half of the file's 32768 went back to the store.
    eventually 60 blocks_at_most $((before - 16384)) "$2"
}
