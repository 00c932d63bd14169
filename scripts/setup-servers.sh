#!/usr/bin/env bash
# setup-servers.sh puts the servers that the tests in integration/ run against into .bin: the machine's own nginx and
# redis-server, or else Debian's packages, unpacked there. Nothing is installed and no service started, so it needs
# neither root nor sudo. It does nothing when they are there.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# usable NAME PATH reports whether that server runs and has what the tests need.
usable() {
	local about
	case $1 in
	nginx)
		about=$("$2" -V 2>&1) || return
		[[ $about == *--with-http_ssl_module* && $about == *--with-http_v2_module* ]]
		;;
	redis-server)
		about=$("$2" --version 2>&1) || return
		[[ $about =~ v=([0-9]+) && ${BASH_REMATCH[1]} -ge 7 ]]
		;;
	esac
}

# installed NAME prints the server of this machine. Debian's directory is not on everybody's PATH.
installed() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$1"
}

# download gets the package of that name into the present directory. apt's lists may be missing or old, so a second
# try has its own, which anybody may write.
download() {
	local options=(-qq -o Acquire::Retries=3 -o Acquire::http::Timeout=30)
	[ "$(id -u)" != 0 ] || options+=(-o APT::Sandbox::User=root) # that user may not read here
	apt-get "${options[@]}" download "$1" 2>/dev/null && return
	mkdir -p state/lists/partial cache/archives/partial
	options+=(-o "Dir::State=$PWD/state" -o "Dir::Cache=$PWD/cache" -o Dir::State::status=/var/lib/dpkg/status)
	apt-get "${options[@]}" update
	apt-get "${options[@]}" download "$1"
}

# unpack NAME PACKAGE... gets Debian's packages into .bin/NAME-package, whole or not at all.
unpack() {
	local name=$1 work=.bin/$1-package.new package
	shift
	rm -rf "$work"
	mkdir -p "$work"
	for package; do
		(cd "$work" && download "$package" && dpkg-deb -x "$package"_*.deb .) || fail "apt can not get the package $package"
	done
	rm -rf "$work"/{state,cache,*.deb} ".bin/$name-package"
	mv "$work" ".bin/$name-package"
}

fail() {
	printf 'FAILED: servers: %s\n' "$1" >&2
	exit 1
}

# server NAME FEATURES PROGRAM PACKAGE... makes .bin/NAME the server; PROGRAM is where the packages have it.
server() {
	local name=$1 features=$2 program=$3 link=.bin/$1 own
	shift 3
	step servers "$name"
	if usable "$name" "$link"; then return; fi
	mkdir -p .bin
	rm -f "$link"
	if own=$(installed "$name") && usable "$name" "$own"; then
		ln -s "$own" "$link"
		return
	fi
	if ! command -v apt-get >/dev/null; then
		fail "no $name $features on this machine, and no apt-get: install one, and run this again"
	fi
	unpack "$name" "$@"
	# Its libraries lie beside it.
	cat >"$link" <<-END
		#!/bin/sh
		LD_LIBRARY_PATH=\$(echo "$root/.bin/$name-package"/usr/lib/*-linux-gnu*) exec "$root/.bin/$name-package/$program" "\$@"
	END
	chmod +x "$link"
	usable "$name" "$link" || fail "$name does not run here; on Debian, apt-get install $name brings what is missing: $("$link" -v 2>&1)"
}

server nginx 'with http_ssl and http_v2' usr/sbin/nginx nginx
server redis-server 'of version 7' usr/bin/redis-server redis-server redis-tools libjemalloc2 liblzf1
