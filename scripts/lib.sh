# shellcheck shell=bash
# Sourced by the other scripts: goes to the root of the repository and reads the file "modules".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

# modules is the directories of all modules, a module after the modules that it requires.
# shellcheck disable=SC2034 # for the scripts that source this one
modules=$(awk '!/^[[:space:]]*(#|$)/ { print $1 }' modules)

# test_packages DIR PATTERN prints the packages of the module that have a test file with such a line.
test_packages() {
	local list package dir
	list=$(cd "$root/$1" && go list -f '{{.ImportPath}} {{.Dir}}' ./...) || return
	while read -r package dir; do
		if grep -qsE "^$2" "$dir"/*_test.go; then echo "$package"; fi
	done <<<"$list"
}

# step LABEL DIR prints which step runs now and where.
step() {
	printf '==> %s: %s\n' "$1" "$2"
}

# finish LABEL DIRS ends the script; DIRS are the modules in which the step failed.
finish() {
	[ -z "$2" ] || {
		printf 'FAILED: %s in module:%s\n' "$1" "$2" >&2
		exit 1
	}
}
