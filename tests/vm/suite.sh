# shellcheck shell=bash
# What every suite and every case sources.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CASE_SETUP=$here/suite.sh
. "$here/cases.sh"
. "$here/target.sh"
. "$here/initiator.sh"
export TARGET WEIR LOG GATEWAY_LOG SEED STORE
