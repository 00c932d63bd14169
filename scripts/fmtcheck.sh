#!/usr/bin/env bash
# fmtcheck.sh fails if gofmt would change a file. One run sees the files of all modules.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

step gofmt "all modules"
files=$(gofmt -l .)
if [ -n "$files" ]; then
	printf 'FAILED: gofmt: run make fmt for:\n%s\n' "$files" >&2
	exit 1
fi
