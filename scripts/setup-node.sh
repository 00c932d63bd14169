#!/usr/bin/env bash
# setup-node.sh puts the packages of integration/testdata/node into .bin/node: Node's own gRPC client, at the versions of
# package-lock.json. It runs none of their scripts, and does nothing when they are there. Node and npm are this machine's.
# Without them, or without the packages, the tests that need them are skipped; with STINT_TEST_REQUIRE=all that is a failure.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

lack() {
	if [ "${STINT_TEST_REQUIRE:-}" = all ]; then
		printf 'FAILED: node: %s\n' "$1" >&2
		exit 1
	fi
	printf 'skipped: node: %s\n' "$1" >&2
	exit 0
}

step servers node
wanted=integration/testdata/node have=.bin/node
if cmp -s "$wanted/package-lock.json" "$have/package-lock.json"; then exit; fi
for program in node npm; do
	command -v "$program" >/dev/null || lack "no $program on this machine; on Debian, apt-get install nodejs npm brings both"
done
work=$have.new
rm -rf "$work"
mkdir -p "$work"
cp "$wanted"/package{,-lock}.json "$work"
(cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) || lack 'npm can not get the packages'
rm -rf "$have"
mv "$work" "$have"
