# shellcheck shell=bash
# The iSCSI target under test, started inside the guest: Weir's gateway, or the
# kernel's own (LIO), against which the suite itself is proven. After target.sh.
#
#   TARGET    weir | lio        WEIR      path of the binary
#
# $IQN, open to any host, has LUN 0 of 512-byte blocks ($ONE_MIB), LUN 1 of
# 4096-byte blocks ($TWO_MIB) and LUN 2 of 512-byte blocks ($THREE_MIB).
# $IQN_CLOSED, with LUN 0 of $THREE_MIB, is for $INITIATOR and its secrets alone.
# $IQN_SLOW, open to any host, has a LUN 0 whose reads and writes take seconds.
# All three have each of the portals. The files lie in $STORE, as in target.sh.
# Weir serves the volume of LUN 0 over NVMe/TCP too, as namespace 1 of $NQN.

ISCSI_PORT=3260
IQN=iqn.2026-01.org.example:open
IQN_CLOSED=iqn.2026-01.org.example:closed
IQN_SLOW=iqn.2026-01.org.example:slow
INITIATOR=iqn.2026-01.org.example.host:one
# The second and third address are one path each: see path_fails.
PORTALS=("$ADDRESS" 127.0.0.2 127.0.0.3)
CHAP_USER=friend
CHAP_SECRET=open-sesame-0001
CHAP_TARGET_USER=cave
CHAP_TARGET_SECRET=close-again-0002
THREE_MIB=8
SLOW_MIB=64
# Longer than the kernel takes to see that a command is a second late.
SLOW_SECONDS=5

# ----------------------------------------------------------------- weir --

weir_iscsi_create() {
    local address
    weir_serve &&
    weir volume add one "file:$STORE/one?size=${ONE_MIB}M&block_size=512" &&
    weir volume add two "file:$STORE/two?size=${TWO_MIB}M&block_size=4096" &&
    weir volume add three "file:$STORE/three?size=${THREE_MIB}M&block_size=512" &&
    weir volume add closed "file:$STORE/closed?size=${THREE_MIB}M&block_size=512" &&
    weir volume add slow "null:?size=${SLOW_MIB}M&block_size=512&delay=${SLOW_SECONDS}s" &&
    weir target add $IQN --allow-any-host &&
    weir lun add $IQN one --lun 0 &&
    weir lun add $IQN two --lun 1 &&
    weir lun add $IQN three --lun 2 &&
    weir target add $IQN_CLOSED &&
    weir host add $INITIATOR &&
    weir target allow $IQN_CLOSED $INITIATOR &&
    WEIR_CHAP_SECRET=$CHAP_SECRET WEIR_CHAP_MUTUAL_SECRET=$CHAP_TARGET_SECRET \
        weir target chap $IQN_CLOSED --user $CHAP_USER --mutual-user $CHAP_TARGET_USER &&
    weir lun add $IQN_CLOSED closed --lun 0 &&
    weir target add $IQN_SLOW --allow-any-host &&
    weir lun add $IQN_SLOW slow --lun 0 &&
    weir subsystem add $NQN --allow-any-host &&
    weir namespace add $NQN one --nsid 1 &&
    weir listener add $ADDRESS:$PORT &&
    for address in "${PORTALS[@]}"; do
        weir listener add --protocol iscsi "$address:$ISCSI_PORT" || return
    done
}

weir_iscsi_kill() { weir_kill; }

weir_iscsi_restart() { weir_restart; }

# weir_iscsi_resize LUN MIB: of LUN 0 or 1.
weir_iscsi_resize() { weir_resize $(($1 + 1)) "$2"; }

weir_iscsi_lun_add() {
    weir volume add "extra$1" "file:$STORE/extra$1?size=16M" &&
    weir lun add $IQN "extra$1" --lun "$1"
}

weir_iscsi_lun_remove() {
    weir lun remove $IQN "$1" && weir volume remove "extra$1"
}

# ------------------------------------------------------------------ lio --

LIO=/sys/kernel/config/target
LIO_ISCSI=$LIO/iscsi

# lio_disk NAME DEVICE: a backing store.
lio_disk() {
    local disk=$LIO/core/iblock_0/$1
    mkdir -p $LIO/core/iblock_0
    mkdir "$disk"
    echo "udev_path=$2" >"$disk/control"
    echo "$2" >"$disk/udev_path"
    echo 1 >"$disk/enable"
    echo "weir-$1" >"$disk/wwn/vpd_unit_serial"
    echo 1 >"$disk/attrib/emulate_tpu"
    echo 1 >"$disk/attrib/emulate_tpws"
}

# lio_file NAME MIB BLOCK_SIZE: a file in the store, as a loop device, which takes a new size.
lio_file() {
    truncate -s "${2}M" "$STORE/$1"
    losetup -f --show --sector-size "$3" "$STORE/$1"
}

lio_lun() {             # IQN LUN DISK
    mkdir "$LIO_ISCSI/$1/tpgt_1/lun/lun_$2"
    ln -s "$LIO/core/iblock_0/$3" "$LIO_ISCSI/$1/tpgt_1/lun/lun_$2/disk"
}

# lio_target IQN open|closed
lio_target() {
    local group=$LIO_ISCSI/$1/tpgt_1 address
    mkdir "$LIO_ISCSI/$1" "$group"
    for address in "${PORTALS[@]}"; do mkdir "$group/np/$address:$ISCSI_PORT"; done
    [ "$2" = open ] || return 0
    echo 0 >"$group/attrib/authentication"
    echo 0 >"$group/attrib/demo_mode_write_protect"
    echo 1 >"$group/attrib/generate_node_acls"
}

lio_iscsi_create() {
    local list
    modprobe -a loop iscsi_target_mod target_core_iblock dm-delay
    mkdir $LIO_ISCSI
    lio_disk one "$(lio_file one $ONE_MIB 512)"
    lio_disk two "$(lio_file two $TWO_MIB 4096)"
    lio_disk three "$(lio_file three $THREE_MIB 512)"
    lio_disk closed "$(lio_file closed $THREE_MIB 512)"
    lio_disk slow "$(lio_slow "$(lio_file slow $SLOW_MIB 512)")"
    lio_target $IQN open
    lio_lun $IQN 0 one
    lio_lun $IQN 1 two
    lio_lun $IQN 2 three
    lio_target $IQN_SLOW open
    lio_lun $IQN_SLOW 0 slow
    lio_target $IQN_CLOSED closed
    lio_lun $IQN_CLOSED 0 closed
    list=$LIO_ISCSI/$IQN_CLOSED/tpgt_1/acls/$INITIATOR
    mkdir "$list" "$list/lun_0"
    ln -s $LIO_ISCSI/$IQN_CLOSED/tpgt_1/lun/lun_0 "$list/lun_0/disk"
    # A line's end would be a part of them.
    printf %s $CHAP_USER >"$list/auth/userid"
    printf %s $CHAP_SECRET >"$list/auth/password"
    printf %s $CHAP_TARGET_USER >"$list/auth/userid_mutual"
    printf %s $CHAP_TARGET_SECRET >"$list/auth/password_mutual"
    lio_iscsi_restart
}

# lio_slow DEVICE: a device on it that takes its time.
lio_slow() {
    dmsetup create slow --noudevsync --table "0 $(blockdev --getsz "$1") delay $1 0 ${SLOW_SECONDS}000"
    dmsetup mknodes slow
    echo /dev/mapper/slow
}

# The nearest that LIO has to dying: every target is closed, and every session with it.
lio_iscsi_kill() {
    local file
    for file in $LIO_ISCSI/iqn*/tpgt_1/enable; do echo 0 >"$file"; done
}

lio_iscsi_restart() {
    local file
    for file in $LIO_ISCSI/iqn*/tpgt_1/enable; do echo 1 >"$file"; done
}

lio_iscsi_resize() {
    local names=(one two)
    truncate -s "${2}M" "$STORE/${names[$1]}"
    losetup -c "$(<"$LIO/core/iblock_0/${names[$1]}/udev_path")"
}

lio_iscsi_lun_add() {
    lio_disk "extra$1" "$(lio_file "extra$1" 16 512)"
    lio_lun $IQN "$1" "extra$1"
}

lio_iscsi_lun_remove() {
    local device
    device=$(<"$LIO/core/iblock_0/extra$1/udev_path")
    rm "$LIO_ISCSI/$IQN/tpgt_1/lun/lun_$1/disk"
    rmdir "$LIO_ISCSI/$IQN/tpgt_1/lun/lun_$1" "$LIO/core/iblock_0/extra$1"
    losetup -d "$device"
}
