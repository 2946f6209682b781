# shellcheck shell=bash
# The Linux kernel's iSCSI initiator, through open-iscsi and sysfs. After initiator.sh, whose loads and patterns it shares.

ISCSI_CLASS=/sys/class/iscsi_session
# Seconds that the host waits for any answer: a machine that stands still for some of them loses no session, unless a case asks for less.
PATIENCE=60

# initiator_start NAME: iscsid, with records and settings of its own, which go with the guest's mounts.
initiator_start() {
    modprobe -a iscsi_tcp sd_mod sg
    mount -t tmpfs iscsi /etc/iscsi
    echo "InitiatorName=$1" >/etc/iscsi/initiatorname.iscsi
    cat >/etc/iscsi/iscsid.conf <<CONF
node.startup = manual
node.session.timeo.replacement_timeout = 600
node.conn[0].timeo.login_timeout = $PATIENCE
node.conn[0].timeo.logout_timeout = $PATIENCE
node.conn[0].timeo.noop_out_interval = $PATIENCE
node.conn[0].timeo.noop_out_timeout = $PATIENCE
node.session.err_timeo.abort_timeout = $PATIENCE
node.session.err_timeo.lu_reset_timeout = $PATIENCE
node.session.err_timeo.tgt_reset_timeout = $PATIENCE
node.session.initial_login_retry_max = 2
CONF
    iscsid --foreground &
}

# node ARG...: on the record of $IQN, or of $NODE, at $ADDRESS, or at $PORTAL.
node() { iscsiadm -m node -T "${NODE:-$IQN}" -p "${PORTAL:-$ADDRESS}:$ISCSI_PORT" "$@"; }

# login_only [NAME=VALUE...]: with these settings beside the usual ones.
login_only() {
    local setting settings=()
    for setting; do settings+=(-n "${setting%%=*}" -v "${setting#*=}"); done
    node -o new
    [ $# = 0 ] || node -o update "${settings[@]}"
    node --login
}

# login [NAME=VALUE...]: and waits for LUN 0.
login() {
    login_only "$@"
    eventually 60 lun 0 >/dev/null
}

logout() { node --logout; }

# sessions: the names (session1) of those with $IQN, or $NODE; through $PORTAL alone, where that is set.
sessions() {
    local - file value
    set +x
    for file in $ISCSI_CLASS/session*; do
        read_value "$file/targetname"
        [ "$value" = "${NODE:-$IQN}" ] || continue
        if [ -n "${PORTAL-}" ]; then
            read_value "/sys/class/iscsi_connection/connection${file##*/session}:0/persistent_address"
            [ "$value" = "$PORTAL" ] || continue
        fi
        echo "${file##*/}"
    done
}

# luns LUN: the block devices of a LUN, one for each of the sessions, once the kernel has them.
luns() {
    local - session file
    set +x
    for session in $(sessions); do
        for file in "$ISCSI_CLASS/$session"/device/target*/*:"$1"/block/sd*; do
            [ ! -b "/dev/${file##*/}" ] || echo "/dev/${file##*/}"
        done
    done
}

# lun LUN: the first.
lun() {
    local - found
    set +x
    found=$(luns "$1")
    [ -n "$found" ] && echo "${found%%$'\n'*}"
}

no_lun() { ! lun "$1" >/dev/null; }

# lun_count LUN COUNT
lun_count() { [ "$(luns "$1" | wc -l)" = "$2" ]; }

no_sessions() { ! compgen -G "$ISCSI_CLASS/session*" >/dev/null; }

# is_logged_in SESSION
is_logged_in() {
    local - value
    set +x
    read_value "$ISCSI_CLASS/$1/state"
    [ "$value" = LOGGED_IN ]
}

not_logged_in() { ! is_logged_in "$1"; }

# connection_value SESSION NAME: what was negotiated, as the kernel has it.
connection_value() { cat "/sys/class/iscsi_connection/connection${1#session}:0/$2"; }

# Nothing that is sent to a portal's address arrives there from now on, and nobody is told.
path_fails() { ip route add blackhole "$1/32" table local; touch "$RUN/lost-$1"; }
path_heals() { ip route del blackhole "$1/32" table local; rm "$RUN/lost-$1"; }

# debug_iscsi eh|conn|session 0|1: the kernel logs what it does.
debug_iscsi() { echo "$2" >"/sys/module/libiscsi/parameters/debug_libiscsi_$1"; }

# said COUNT PATTERN: the kernel has said it so often since listen_to_kernel.
said() { [ "$(dmesg | sed "1,/$listened/d" | grep -c -- "$2")" -ge "$1" ]; }
listen_to_kernel() { listened="listening $EPOCHREALTIME" && echo "$listened" >/dev/kmsg; }

# generic DEVICE: its other node, which passes commands through.
generic() { echo "/dev/$(cd "/sys/block/${1##*/}/device/scsi_generic" && echo sg*)"; }

# Whatever a case left: mounts, mapped devices, broken paths, sessions, records.
iscsi_cleanup() {
    local file
    ! grep -q ' /mnt/host ' /proc/self/mounts || umount /mnt/host || umount -l /mnt/host
    for file in "$RUN"/lost-*; do [ ! -e "$file" ] || path_heals "${file##*/lost-}"; done
    [ ! -e /dev/mapper/paths ] || dmsetup remove --noudevsync --force --retry paths
    no_sessions || iscsiadm -m session --logout || true
    rm -rf /etc/iscsi/nodes /etc/iscsi/send_targets
    debug_iscsi eh 0
    debug_iscsi conn 0
}
