# shellcheck shell=bash
# What the scripts share: installing what is missing, and finding Rust.
#
# Sourced. Nothing is installed without a line that says so first.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
script=${0##*/}
PATH=$PATH:$HOME/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() { say "$*"; exit 1; }

# usage: the comment at the top of the script, for --help.
usage() { sed -n '2,/^[^#]*$/{s/^# \{0,1\}//p}' "$0"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "root is needed to run: $*"; fi
}

apt_install() {
    # The lists may be missing (a fresh image) or stale: then once more with new ones.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { as_root apt-get update -qq >&2 &&
          as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null; }
}

# need_packages PACKAGE...: installs those that are missing.
need_packages() {
    local missing=() package
    command -v apt-get >/dev/null ||
        die "no apt-get here: install by hand what these Debian packages hold: $*"
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing the packages ${missing[*]}"
    apt_install "${missing[@]}" || die "cannot install ${missing[*]}: see what apt-get says above"
}

# want_packages PACKAGE...: installs those that are missing and that this distribution has; what needs
# the others is skipped, and says so.
want_packages() {
    local missing=() there=() absent=() package
    command -v apt-get >/dev/null || return 0
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    apt-cache show --no-all-versions "${missing[@]}" >/dev/null 2>&1 || as_root apt-get update -qq >&2
    for package in "${missing[@]}"; do
        if apt-cache show --no-all-versions "$package" >/dev/null 2>&1; then
            there+=("$package")
        else
            absent+=("$package")
        fi
    done
    [ ${#absent[@]} = 0 ] || say "this distribution does not have the packages ${absent[*]}"
    [ ${#there[@]} -gt 0 ] || return 0
    say "installing the packages ${there[*]}"
    apt_install "${there[@]}" || say "cannot install ${there[*]}: see what apt-get says above"
}

# The least Rust that the workspace builds with, from its Cargo.toml.
rust_version_least() { sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml"; }

rust_is_recent() {
    local found
    found=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [ -n "$found" ] && [ "$(printf '%s\n' "$(rust_version_least)" "$found" | sort -V | head -n 1)" = "$(rust_version_least)" ]
}

# need_rust: a recent cargo, from the distribution's rustup package where there is none.
need_rust() {
    # The compiler calls cc to link.
    need_packages gcc libc6-dev ca-certificates
    ! rust_is_recent || return 0
    if ! command -v rustup >/dev/null; then
        [ -n "$(apt-cache policy rustup 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v none)" ] ||
            as_root apt-get update -qq >&2
        [ -n "$(apt-cache policy rustup 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v none)" ] ||
            die "Rust $(rust_version_least) or newer is needed and this distribution has no rustup package: sudo apt-get install -y curl && curl -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal, then run $script again"
        need_packages rustup
    fi
    say "installing the stable Rust toolchain for $(id -un), with rustup"
    # A rustup from a package cannot update itself, and counts the attempt as a failure.
    rustup toolchain install stable --profile minimal --no-self-update >&2 && rustup default stable >&2 ||
        die "rustup could not install the stable toolchain"
    hash -r
    rust_is_recent || die "the stable Rust is older than $(rust_version_least): $(cargo --version)"
}

# The folder that cargo builds into.
build_folder() { printf '%s\n' "${CARGO_TARGET_DIR:-$root/target}"; }

# hold_port: sets port to a port of 127.0.0.1 that is this shell's until it ends.
#
# A socket that never listens holds it. A gateway listens there all the same, because Weir allows the reuse of addresses, and may do
# so again after a restart. The system gives the port to no other process meanwhile.
hold_port() {
    local holder
    # shellcheck disable=SC2016
    exec {holder}< <(exec perl -MSocket -e '
        my $parent = shift;
        socket(my $held, PF_INET, SOCK_STREAM, 0) or die "no socket: $!";
        setsockopt($held, SOL_SOCKET, SO_REUSEADDR, 1) or die "no option: $!";
        bind($held, sockaddr_in(0, INADDR_LOOPBACK)) or die "no port: $!";
        $| = 1;
        print +(sockaddr_in(getsockname($held)))[0], "\n";
        sleep 1 while kill 0, $parent;' $$)
    read -r port <&"$holder" || die "no port can be held"
}

# ------------------------------------------------- a gateway of our own --

# gateway_start FOLDER [TABLES [KEYS]]: weir serve with its state, socket and log in FOLDER,
# further tables of its configuration, and keys before all tables; sets gateway_pid and gateway_socket.
# $weir is the binary.
gateway_start() {
    local folder=$1 tables=${2-} keys=${3-} i
    gateway_socket=$folder/weir.sock
    cat >"$folder/weir.toml" <<TOML
state = "$folder/state.json"
$keys

[control]
socket = "$gateway_socket"
$tables
TOML
    "$weir" serve --config "$folder/weir.toml" >>"$folder/weir.log" 2>&1 &
    gateway_pid=$!
    for ((i = 0; i < 300; i++)); do
        ! gateway status >/dev/null 2>&1 || return 0
        kill -0 $gateway_pid 2>/dev/null || break
        sleep 0.1
    done
    cat "$folder/weir.log" >&2
    die "the gateway did not start"
}

# gateway ARG...: a command to the gateway that gateway_start started.
gateway() { "$weir" --socket "$gateway_socket" "$@"; }

gateway_stop() {
    [ -n "${gateway_pid-}" ] || return 0
    kill -TERM "$gateway_pid" 2>/dev/null
    wait "$gateway_pid"
    local rc=$?
    gateway_pid=''
    return $rc
}
