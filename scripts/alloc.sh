#!/usr/bin/env bash
# alloc.sh runs the allocation tests, which have Alloc in their names, without the race detector.
# Only packages that have some are built a second time.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

failed=
for dir in $modules; do
	step alloc "$dir"
	packages=$(test_packages "$dir" 'func Test[A-Za-z0-9_]*Alloc') || failed+=" $dir"
	[ -n "$packages" ] || continue
	# shellcheck disable=SC2086 # one argument for each package
	(cd "$dir" && go test -run Alloc $packages) || failed+=" $dir"
done
finish alloc "$failed"
