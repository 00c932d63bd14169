#!/usr/bin/env bash
# fuzz.sh runs every fuzz target of every module for FUZZTIME, one after the other, as go test -fuzz wants it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

: "${FUZZTIME:=10m}"
failed=
for dir in $modules; do
	packages=$(test_packages "$dir" 'func Fuzz') || failed+=" $dir"
	for package in $packages; do
		if ! list=$(cd "$dir" && go test -list '^Fuzz' "$package"); then
			printf '%s\n' "$list"
			failed+=" $dir"
		fi
		while read -r target; do
			case $target in Fuzz*) ;; *) continue ;; esac
			step "fuzz $target for $FUZZTIME" "$dir, package $package"
			(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" "$package") </dev/null || failed+=" $dir"
		done <<<"$list"
	done
done
finish fuzz "$failed"
