#!/usr/bin/env bash
# tidy.sh runs go mod tidy in every module and writes go.work.sum anew.
#
# The modules require one another at v0.0.0, which nobody serves: go.work says where they are, but go mod tidy does
# not read it. So each go.mod gets a replace for every other module, and loses it again whatever happens.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

module_path() {
	awk '$1 == "module" { print $2; exit }' "$root/$1/go.mod"
}

# siblings add|drop DIR adds or drops, in the go.mod of DIR, the replaces for the other modules.
siblings() {
	local dir path
	for dir in $modules; do
		[ "$dir" != "$2" ] || continue
		path=$(module_path "$dir")
		case $1 in
		add) go mod edit "-replace=$path@v0.0.0=$root/$dir" "$root/$2/go.mod" ;;
		drop) go mod edit "-dropreplace=$path@v0.0.0" "$root/$2/go.mod" ;;
		esac
	done
}

failed=
for dir in $modules; do
	step tidy "$dir"
	trap 'siblings drop "$dir"' EXIT
	siblings add "$dir"
	(cd "$dir" && GOWORK=off go mod tidy) || failed+=" $dir"
	siblings drop "$dir"
	trap - EXIT
done
finish tidy "$failed"

# go.work.sum has what the workspace needs beyond the modules' own sums; these two commands together add all of it.
step tidy go.work.sum
rm -f go.work.sum
go list -m all >/dev/null
go list -deps -test all tool >/dev/null
