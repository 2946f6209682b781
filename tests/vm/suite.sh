# shellcheck shell=bash
# What every suite sources.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# A slow machine is no failure: this ends a case that hangs.
CASE_SECONDS_MAX=300
. "$here/cases.sh"
. "$here/target.sh"
. "$here/initiator.sh"
export TARGET WEIR LOG GATEWAY_LOG SEED STORE
