#!/usr/bin/env bash
# readme.sh puts what "go run ./cmd/stint lab -short" prints now between the lab marks of README.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

begin='<!-- lab:begin -->'
end='<!-- lab:end -->'
for mark in "$begin" "$end"; do
	if [ "$(grep -cxF -- "$mark" README.md)" != 1 ]; then
		printf 'FAILED: readme: README.md must have one line %s\n' "$mark" >&2
		exit 1
	fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step readme .
NO_COLOR=1 go run ./cmd/stint lab -short >"$work/lab" || {
	echo 'FAILED: readme: the lab failed; README.md is as it was' >&2
	exit 1
}
awk -v begin="$begin" -v end="$end" -v lab="$work/lab" '
	$0 == end { skip = 0 }
	!skip
	$0 == begin {
		skip = 1
		print "```text"
		while ((getline line < lab) > 0) print line
		print "```"
	}
' README.md >"$work/README.md"
cat "$work/README.md" >README.md
