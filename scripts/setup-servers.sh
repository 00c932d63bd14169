#!/usr/bin/env bash
# setup-servers.sh puts the servers that the tests in integration/ run against into .bin: the machine's own, or else
# Debian's packages, unpacked there. Nothing is installed and no service started, so it needs neither root nor sudo.
# It does nothing when they are there.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# run SERVER ARGUMENT... runs .bin/SERVER with the libraries that were unpacked with it.
run() {
	LD_LIBRARY_PATH=$(printf '%s:' "$PWD/.bin/${1%%/*}-package"/usr/lib/*-linux-gnu) ".bin/$1" "${@:2}" 2>&1
}

# usable_SERVER reports whether that server runs and has what the tests need.
usable_nginx() {
	local about
	about=$(run nginx -V) || return
	[[ $about == *--with-http_ssl_module* && $about == *--with-http_v2_module* ]]
}
usable_postgresql() {
	run postgresql/postgres --version >/dev/null && run postgresql/initdb --version >/dev/null
}
usable_pgbouncer() {
	run pgbouncer --version >/dev/null
}
usable_redis-server() {
	local about
	about=$(run redis-server --version) || return
	[[ $about =~ v=([0-9]+) && ${BASH_REMATCH[1]} -ge 7 ]]
}

usable_mariadb() { # without the statements that make a new server's own tables there is no new server
	run mariadb --version >/dev/null && compgen -G "$(dirname "$(readlink -f .bin/mariadb)")/../share/*/m*_system_tables.sql" >/dev/null
}

# installed_SERVER prints where this machine has it. Debian's directories are not on everybody's PATH.
installed_nginx() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nginx
}
installed_postgresql() { # the newest directory of programs
	local initdb
	initdb=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
	[ -x "$initdb" ] || initdb=$(readlink -f "$(command -v initdb)") && dirname "$initdb"
}
installed_pgbouncer() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v pgbouncer
}
installed_redis-server() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v redis-server
}

installed_mariadb() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin command -v mariadbd
}

# packages_SERVER prints Debian's packages of it: its own, and libraries that a machine may be without.
packages_nginx() {
	echo nginx
}
packages_postgresql() { # the package postgresql is empty and names the version
	apt-cache depends postgresql | awk '$1 == "Depends:" && $2 ~ /^postgresql-[0-9]+$/ { print $2 }'
	echo libpq5
}
packages_pgbouncer() {
	echo pgbouncer libevent-2.1-7 libc-ares2
}
packages_redis-server() { # its program is in redis-tools
	echo redis-server redis-tools libjemalloc2 liblzf1
}

packages_mariadb() {
	echo mariadb-server-core libaio1 libnuma1 liburing2
}

# inside_SERVER prints where the packages have what .bin/SERVER leads to.
inside_nginx() { echo usr/sbin/nginx; }
inside_postgresql() { (cd .bin/postgresql-package && echo usr/lib/postgresql/*/bin); }
inside_pgbouncer() { echo usr/sbin/pgbouncer; }
inside_redis-server() { echo usr/bin/redis-server; }
inside_mariadb() { echo usr/sbin/mariadbd; }

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

# unpack gets the server's packages into .bin/SERVER-package, whole or not at all.
unpack() {
	local work=.bin/$1-package.new package
	rm -rf "$work"
	mkdir -p "$work"
	for package in $("packages_$1"); do
		(cd "$work" && download "$package" && dpkg-deb -x "$package"_*.deb .) || fail "apt can not get the package $package"
	done
	rm -rf "$work"/{state,cache,*.deb} ".bin/$1-package"
	mv "$work" ".bin/$1-package"
}

fail() {
	printf 'FAILED: servers: %s\n' "$1" >&2
	exit 1
}

# setup makes .bin/SERVER a link to the machine's own server, or else to an unpacked one.
setup() {
	local link=.bin/$1 program
	step servers "$1"
	if "usable_$1"; then return; fi
	if program=$("installed_$1"); then
		ln -sfn "$program" "$link"
		if "usable_$1"; then return; fi
	fi
	if ! command -v apt-get >/dev/null; then
		fail "no usable $1 on this machine, and no apt-get: install one, and run this again"
	fi
	unpack "$1"
	ln -sfn "$1-package/$("inside_$1")" "$link"
	"usable_$1" || fail "$1 does not run here; on Debian, apt-get install $1 brings what is missing"
}

mkdir -p .bin
for server in nginx postgresql pgbouncer redis-server mariadb; do
	setup "$server"
done
