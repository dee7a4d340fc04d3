#!/bin/sh
# Installs, upgrades, removes and purges the packages with apt in a clean Debian system, as a
# user does. Runs systemd there, in namespaces of its own, if they are allowed. Needs root and
# Debian's packages. DIR has a folder of packages for each version.
# usage: sh systemd/package_test.sh DIR OLD BETWEEN NEW
# REEL_DEBIAN names the root of a Debian system to use (and change) instead of a new one.
set -eu
here=$(dirname "$0")
dir=$1 old=$2 between=$3 new=$4
if test "$(id -u)" != 0; then
	echo "the package was not tested: that needs root" >&2
	test -z "${CI:-}"
	exit
fi
command -v debootstrap >/dev/null || { echo "the package's test needs debootstrap: apt-get install debootstrap" >&2; exit 1; }
work=$(mktemp -d /var/tmp/reel-package.XXXXXX)
root=${REEL_DEBIAN:-$work/root}
packages=$root/srv/packages
. "$here/boot.sh"
. "$here/gateway_test.sh"
trap cleanup EXIT
trap 'exit 1' INT TERM

# offer adds packages to the Debian system's only repository.
offer() {
	for deb in "$@"; do
		cp "$deb" "$packages/"
		dpkg-deb -f "$deb"
		printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${deb##*/}" "$(wc -c <"$deb")" "$(sha256sum <"$deb" | cut -d ' ' -f 1)"
	done >>"$packages/Packages"
	as_ada apt-get update
}

# as_ada runs a command with sudo as the user ada.
as_ada() { within su ada -c "cd / && sudo $*" >"$work/apt.log" 2>&1 || { cat "$work/apt.log"; fail "sudo $*"; }; }

echo "a clean Debian system"
test -n "${REEL_DEBIAN:-}" || debootstrap --variant=minbase --include=systemd,systemd-sysv,sudo bookworm "$root" >"$work/debootstrap.log" 2>&1 ||
	{ tail -n 5 "$work/debootstrap.log"; exit 1; }
add_users ada
mkdir "$packages"
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/packages ./' >"$root/etc/apt/sources.list"
# Only the device differs from the unit's command line.
host=$root/etc/systemd/system/reel-generator.service.d/host.conf
mkdir -p "${host%/*}"
{ echo "[Service]"; echo ExecStart=; sed -n 's/^\(ExecStart=.*\)--device cuda/\1--device host/p' "$here/reel-generator.service"; } >"$host"
if boot; then
	echo "systemd runs in it"
else
	init=
	echo "systemd does not run here: the units are installed, but not started"
fi

echo "two commands to the first token"
cp "$dir/$old"/reel_*.deb "$packages/reel.deb"
as_ada apt-get install -y /srv/packages/reel.deb
if test -n "$init"; then
	text=$(within su ada -c "cd / && sg reel -c 'reel \"ROMEO:\"'") && test -n "$text" || fail "no text"
fi
within id -nG ada | grep -qw reel || fail "the user who installed it is not in the group reel"
within getent passwd reel >/dev/null || fail "there is no user reel"
test -L "$root/etc/systemd/system/multi-user.target.wants/reel-generator.service" || fail "the service is not enabled"
test -L "$root/etc/systemd/system/sockets.target.wants/reel-generator.socket" || fail "the socket is not enabled"
within reel --version | grep -qF "reel $old," || fail "reel does not print its version"
within sh -c 'test -s /usr/share/man/man1/reel.1.gz && test -s /usr/share/man/man1/reel-generator.1.gz && zcat /usr/share/man/man1/reel.1.gz | grep -q "^.SH EXIT STATUS" && bash -n /usr/share/bash-completion/completions/reel' || fail "man pages or completions are missing"

for field in Homepage Maintainer; do
	within dpkg-query -W -f "\${$field}" reel | grep -q . || fail "the package has no field $field"
done
! within test -e /usr/bin/reel-bench || fail "reel-bench is in the package reel"
within test -x /usr/bin/reel-format || fail "reel-format is not in the package reel"

echo "reel-bench"
cp "$dir/$old"/reel-bench_*.deb "$packages/reel-bench.deb"
as_ada apt-get install -y /srv/packages/reel-bench.deb
within reel-bench --version | grep -qF "$old" || fail "reel-bench does not print its version"
within sh -c 'test -s /usr/share/man/man1/reel-bench-latency.1.gz && bash -n /usr/share/bash-completion/completions/reel-bench' || fail "man pages or completions of reel-bench are missing"

test_gateway_installed
if test -n "$init"; then
	test_gateway
	test_instances
	within systemctl show -P StatusText reel-generator | grep -q '^ready: ' || fail "no status text"
	test "$(within systemctl show -P OOMPolicy reel-generator)" = continue || fail "the end of a format would stop the service"
	test "$(within stat -c '%U:%G %a' /run/reel /run/reel/generator.sock | tr '\n' ' ')" = "reel:reel 750 reel:reel 660 " || fail "modes: $(within stat -c '%U:%G %a' /run/reel /run/reel/generator.sock)"
	test "$(within su ada -c "cd / && reel --regex '[a-z]{5}' ROMEO:" | tr -d '\n' | wc -c)" = 5 || fail "no answer with a format"
	within useradd -m eve
	! within su eve -c 'cd / && reel --wait 0 status' >/dev/null 2>&1 || fail "a user outside the group may connect"
	test_restarts ada
	test_sleep ada "${REEL_WAKES:-20}" "${REEL_WAKE_EVERY:-0}"

	echo "without a GPU the unit fails, is not restarted, and gives the reason"
	mv "$host" "$work/host.conf"
	within sh -c 'systemctl daemon-reload && systemctl restart reel-generator' >/dev/null 2>&1 || true
	eventually within sh -c 'test "$(systemctl show -P ExecMainStatus reel-generator)" = 78'
	test "$(within systemctl show -P NRestarts reel-generator)" = 0 || fail "it was restarted"
	within sh -c 'reel --wait 0 status | grep -q "^reason *gpu_absent: "' || fail "reel status does not give the reason"
	mv "$work/host.conf" "$host"
	within sh -c 'systemctl daemon-reload && systemctl reset-failed reel-generator.service reel-generator.socket && systemctl start reel-generator.socket reel-generator.service'
	was=$(pid)
else
	echo REEL_MAX_REQUESTS=7 >>"$root/etc/reel/generator.env"
fi

echo "upgrade"
test -z "$init" || gateway_was=$(within systemctl show -P MainPID reel-gateway)
offer "$dir"/*/*.deb
within dpkg --compare-versions "$old" lt "$between" && within dpkg --compare-versions "$between" lt "$new" || fail "the versions do not sort"
within apt-cache policy reel | grep -qF "Candidate: $new" || fail "apt does not see the new package"
as_ada apt-get upgrade -y
within reel --version | grep -qF "reel $new," || fail "reel is still the old version"
within reel-bench --version | grep -qF "$new" || fail "reel-bench is still the old version"
grep -q '^REEL_MAX_REQUESTS=7' "$root/etc/reel/generator.env" || fail "the settings are lost"
if test -n "$init"; then
	restarted "$was"
	test -n "$(ask ada)" || fail "no text after the upgrade"
	eventually within sh -c "test \"\$(systemctl show -P MainPID reel-gateway)\" != $gateway_was"
	eventually gateway_serves ada
	within reel status | grep -qF "$new" || fail "the old generator still serves"
fi

echo "removal"
as_ada apt-get remove -y reel
test ! -e "$root/usr/bin/reel" || fail "reel is still there"
test ! -L "$root/etc/systemd/system/multi-user.target.wants/reel-generator.service" || fail "the service is still enabled"
grep -q '^REEL_MAX_REQUESTS=7' "$root/etc/reel/generator.env" || fail "the removal deleted the settings"
test -z "$init" || ! within systemctl is-active reel-generator.service >/dev/null || fail "the service still runs"
test -z "$init" || ! within systemctl is-active reel-gateway.service >/dev/null || fail "the gateway still runs"
test -z "$init" || ! within systemctl is-active reel-generator.socket >/dev/null || fail "the socket is still open"
as_ada apt-get purge -y reel reel-bench
test ! -e "$root/usr/bin/reel-bench" || fail "reel-bench is still there"
test ! -e "$root/etc/reel" || fail "the purge left the settings"
echo "ok"
