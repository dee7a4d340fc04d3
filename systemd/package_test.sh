#!/bin/sh
# Installs, upgrades, removes and purges the package in a clean Debian, as a user
# does, with systemd running in it where that can run: in namespaces of its own.
# Needs root and Debian's packages. usage: sh systemd/package_test.sh OLD.deb NEW.deb
set -eu
old=$(realpath "$1") new=$(realpath "$2")
if test "$(id -u)" != 0; then
	echo "the package was not installed anywhere: its test needs root" >&2
	test -z "${CI:-}"
	exit
fi
command -v debootstrap >/dev/null || { echo "the package's test needs debootstrap: apt-get install debootstrap" >&2; exit 1; }
work=$(mktemp -d /var/tmp/reel-package.XXXXXX)
root=$work/root init=
cleanup() {
	test -z "$init" || kill -KILL "$init" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAIL: $*" >&2
	test -z "$init" || within journalctl -u reel-generator --no-pager -n 30 >&2 || true
	exit 1
}

# within runs a command in the Debian: in its systemd's namespaces, or in a chroot.
within() {
	if test -n "$init"; then
		(cd / && timeout -k 5 60 nsenter -t "$init" -m -p -u -i -r -w env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@")
	else
		chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
	fi
}

# eventually repeats a command until it succeeds.
eventually() {
	for _ in $(seq 300); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	fail "never so: $*"
}

boot() {
	unshare --mount --pid --fork --kill-child --cgroup --uts --ipc sh -c "
		mount --make-rprivate / && mount --bind '$root' '$root' && mount -t proc proc '$root/proc' &&
		mount -t tmpfs tmpfs '$root/run' && mount -t tmpfs tmpfs '$root/tmp' && mount --rbind /sys '$root/sys' &&
		exec chroot '$root' env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other /lib/systemd/systemd --unit=multi-user.target" \
		>"$work/boot.log" 2>&1 </dev/null &
	parent=$!
	for _ in $(seq 300); do
		kill -0 "$parent" 2>/dev/null || return 1
		init=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null | tr -d ' ')
		if test -n "$init" && within systemctl is-active multi-user.target >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	test -z "$init" || kill -KILL "$init"
	return 1
}

echo "a clean Debian"
test -z "${REEL_DEBIAN:-}" || root=$REEL_DEBIAN
test -n "${REEL_DEBIAN:-}" || debootstrap --variant=minbase --include=systemd,systemd-sysv bookworm "$root" >"$work/debootstrap.log" 2>&1 ||
	{ tail -n 5 "$work/debootstrap.log"; exit 1; }
within useradd -m ada
mkdir "$root/srv/packages"
cp "$old" "$root/srv/packages/old.deb"
cp "$new" "$root/srv/packages/new.deb"
if boot; then
	echo "systemd runs in it"
else
	init=
	echo "systemd does not run here: the units are installed, and not started"
fi

echo "install"
within env SUDO_USER=ada dpkg -i /srv/packages/old.deb >/dev/null
within id -nG ada | grep -qw reel || fail "the user who installed it is not in the group reel"
within getent passwd reel >/dev/null || fail "there is no user reel"
test -L "$root/etc/systemd/system/multi-user.target.wants/reel-generator.service" || fail "the service is not enabled"
test -L "$root/etc/systemd/system/sockets.target.wants/reel-generator.socket" || fail "the socket is not enabled"
within reel --version | grep -q v0.1.0 || fail "reel is not there"
within sh -c 'test -s /usr/share/man/man1/reel.1.gz && test -s /usr/share/man/man1/reel-generator.1.gz && bash -n /usr/share/bash-completion/completions/reel' || fail "man pages or completions are missing"

# ask has the user who installed it ask for a completion.
ask() { within su ada -c 'cd / && reel --max-tokens 8 --wait 20s "ROMEO:"'; }
pid() { within systemctl show -P MainPID reel-generator; }

if test -n "$init"; then
	echo "without a GPU the unit fails for good, and says why"
	eventually within sh -c 'test "$(systemctl show -P ExecMainStatus reel-generator)" = 78'
	test "$(within systemctl show -P NRestarts reel-generator)" = 0 || fail "it was started again"
	within sh -c 'reel --wait 0 status | grep -q "^reason *gpu_absent: "' || fail "reel status does not say why"
	echo "the unit on the host device"
	# Only the device is another: the rest of the line is the unit's own.
	within sh -c 'mkdir -p /etc/systemd/system/reel-generator.service.d && { echo "[Service]"; echo ExecStart=;
		sed -n "s/^\(ExecStart=.*\)--device cuda/\1--device host/p" /usr/lib/systemd/system/reel-generator.service
		} >/etc/systemd/system/reel-generator.service.d/host.conf && systemctl daemon-reload && systemctl reset-failed reel-generator.service reel-generator.socket'
	within systemctl start reel-generator.socket reel-generator.service || fail "it does not start"
	test "$(within systemctl is-active reel-generator)" = active || fail "it is not active"
	within systemctl show -P StatusText reel-generator | grep -q '^ready: ' || fail "no status text"
	test -n "$(ask)" || fail "no text came"
	test "$(within stat -c '%U:%G %a' /run/reel /run/reel/generator.sock | tr '\n' ' ')" = "reel:reel 750 reel:reel 660 " || fail "modes: $(within stat -c '%U:%G %a' /run/reel /run/reel/generator.sock)"
	within useradd -m eve
	! within su eve -c 'cd / && reel --wait 0 status' >/dev/null 2>&1 || fail "who is not in the group is let in"

	echo "the service is killed: its socket stays, and serves again"
	before=$(within stat -c %i /run/reel/generator.sock) was=$(pid)
	within systemctl kill -s KILL reel-generator.service
	test -n "$(ask)" || fail "no text came after a restart"
	test "$(within stat -c %i /run/reel/generator.sock)" = "$before" || fail "the socket is another"
	test "$(pid)" != "$was" || fail "it is the old process"

	echo "the engine is stopped: the watchdog ends the service, and it serves again"
	was=$(pid)
	within sh -c 'printf "[Service]\nWatchdogSec=2\n" >/etc/systemd/system/reel-generator.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart reel-generator.service'
	was=$(pid)
	within sh -c "kill -STOP $was"
	eventually within sh -c "test \"\$(systemctl show -P MainPID reel-generator)\" != $was && systemctl is-active reel-generator.service"
	within journalctl -u reel-generator --no-pager | grep -q 'Watchdog timeout' || fail "it was not the watchdog"
	test -n "$(ask)" || fail "no text came after the watchdog"

	echo "reload"
	within sh -c 'echo REEL_MAX_REQUESTS=7 >>/etc/reel/generator.env && systemctl reload reel-generator'
	eventually sh -c "nsenter -t $init -m -p -r reel status --json | grep -q '\"requests\":7'"
	was=$(pid)
else
	echo REEL_MAX_REQUESTS=7 >>"$root/etc/reel/generator.env"
fi

echo "upgrade"
within dpkg -i /srv/packages/new.deb >/dev/null
within reel --version | grep -q v0.2.0 || fail "reel is the old one"
grep -q '^REEL_MAX_REQUESTS=7' "$root/etc/reel/generator.env" || fail "the settings are lost"
if test -n "$init"; then
	eventually within sh -c "test \"\$(systemctl show -P MainPID reel-generator)\" != $was && systemctl is-active reel-generator.service"
	test -n "$(ask)" || fail "no text came after the upgrade"
	within reel status | grep -q 'v0.2.0' || fail "the old generator serves"
fi

echo "removal"
within dpkg -r reel >/dev/null
test ! -e "$root/usr/bin/reel" || fail "reel is still there"
test ! -L "$root/etc/systemd/system/multi-user.target.wants/reel-generator.service" || fail "the service is still enabled"
grep -q '^REEL_MAX_REQUESTS=7' "$root/etc/reel/generator.env" || fail "a removal takes the settings"
test -z "$init" || ! within systemctl is-active reel-generator.service >/dev/null || fail "the service still runs"
test -z "$init" || ! within systemctl is-active reel-generator.socket >/dev/null || fail "the socket is still open"
within dpkg -P reel >/dev/null
test ! -e "$root/etc/reel" || fail "a purge leaves the settings"
echo "ok"
