#!/usr/bin/env bash
# each.sh LABEL COMMAND [ARGUMENT...] runs the command in the directory of every module.
# It goes on after a failure, so that one run shows them all, and then fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

label=$1
shift
failed=
for dir in $modules; do
	step "$label" "$dir"
	(cd "$dir" && "$@") || failed+=" $dir"
done
finish "$label" "$failed"
