#!/usr/bin/env bash
# block.sh FILE NAME COMMAND [ARGUMENT...] puts what the command prints now between the marks NAME:begin and NAME:end
# of the file, which stays as it is if the command fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

file=$1
begin="<!-- $2:begin -->"
end="<!-- $2:end -->"
shift 2
for mark in "$begin" "$end"; do
	if [ "$(grep -cxF -- "$mark" "$file")" != 1 ]; then
		printf 'FAILED: %s must have one line %s\n' "$file" "$mark" >&2
		exit 1
	fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step "$file" "$*"
NO_COLOR=1 "$@" >"$work/printed" || {
	printf 'FAILED: %s; %s is as it was\n' "$*" "$file" >&2
	exit 1
}
awk -v begin="$begin" -v end="$end" -v printed="$work/printed" '
	$0 == end { skip = 0 }
	!skip
	$0 == begin {
		skip = 1
		print "```text"
		while ((getline line < printed) > 0) print line
		print "```"
	}
' "$file" >"$work/new"
cat "$work/new" >"$file"
