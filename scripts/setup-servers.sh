#!/usr/bin/env bash
# setup-servers.sh puts the servers that the tests in integration/ run against into .bin: the machine's own nginx, or
# else Debian's package, unpacked there. Nothing is installed and no service started, so it needs neither root nor sudo.
# It does nothing when they are there.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# usable PATH reports whether that nginx runs and has what the tests need.
usable() {
	local about
	about=$("$1" -V 2>&1) || return
	[[ $about == *--with-http_ssl_module* && $about == *--with-http_v2_module* ]]
}

# installed prints the nginx of this machine. Debian's directory is not on everybody's PATH.
installed() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nginx
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

# unpack gets Debian's nginx into .bin/nginx-package, whole or not at all.
unpack() {
	local work=.bin/nginx-package.new
	rm -rf "$work"
	mkdir -p "$work"
	(cd "$work" && download nginx && dpkg-deb -x nginx_*.deb .) || fail 'apt can not get the package nginx'
	rm -rf "$work"/{state,cache,*.deb} .bin/nginx-package
	mv "$work" .bin/nginx-package
}

fail() {
	printf 'FAILED: servers: %s\n' "$1" >&2
	exit 1
}

step servers nginx
link=.bin/nginx
if usable "$link"; then exit; fi
mkdir -p .bin
if program=$(installed) && usable "$program"; then
	ln -sfn "$program" "$link"
	exit
fi
if ! command -v apt-get >/dev/null; then
	fail 'no nginx with http_ssl and http_v2 on this machine, and no apt-get: install one, and run this again'
fi
unpack
ln -sfn nginx-package/usr/sbin/nginx "$link"
usable "$link" || fail "nginx does not run here; on Debian, apt-get install nginx brings what is missing: $("$link" -V 2>&1)"
