# Functions for tests that run the units under a systemd of their own, in a Debian
# at $root: in namespaces, so that nothing of it reaches this machine. Scripts
# read this file; $work is a folder of theirs, which cleanup removes.
init=

cleanup() {
	test -z "$init" || kill -KILL "$init" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}

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

# boot starts systemd; it returns 1 where namespaces do not allow that. Where this
# machine has NVIDIA's device nodes and driver, the Debian has them too.
boot() {
	unshare --mount --pid --fork --kill-child --cgroup --uts --ipc sh -c '
		set -e
		root=$1
		mount --make-rprivate /
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount -t tmpfs tmpfs "$root/run"
		mount -t tmpfs tmpfs "$root/tmp"
		mount --rbind /sys "$root/sys"
		for node in $(find /dev -path "/dev/nvidia*" -type c); do
			mkdir -p "$root${node%/*}"
			: >>"$root$node"
			mount --bind "$node" "$root$node"
		done
		if test -d /usr/local/nvidia; then
			mkdir -p "$root/usr/local/nvidia"
			mount --rbind /usr/local/nvidia "$root/usr/local/nvidia"
		fi
		exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other /lib/systemd/systemd --unit=multi-user.target' sh "$root" \
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

# ask has a user, who may not have logged in since the package was installed, ask for a completion.
ask() { within su "$1" -c 'cd / && sg reel -c "reel --max-tokens 8 --wait 20s ROMEO:"'; }
pid() { within systemctl show -P MainPID reel-generator; }

# alive waits until another process than $1 serves.
alive() {
	eventually within sh -c "test \"\$(systemctl show -P MainPID reel-generator)\" != $1 && systemctl is-active reel-generator.service"
}

# setup of people: each may use sudo, as who installs a program on a machine of their own.
people() {
	for name in "$@"; do
		within useradd -m "$name"
		echo "$name ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$name"
	done
}

# killed, hung and reload show that the service outlives what happens to services.
outlives() {
	echo "the service is killed: its socket stays, and serves again"
	before=$(within stat -c %i /run/reel/generator.sock) was=$(pid)
	within systemctl kill -s KILL reel-generator.service
	test -n "$(ask "$1")" || fail "no text came after a restart"
	test "$(within stat -c %i /run/reel/generator.sock)" = "$before" || fail "the socket is another"
	test "$(pid)" != "$was" || fail "it is the old process"

	echo "the engine is stopped: the watchdog ends the service, and it serves again"
	within sh -c 'printf "[Service]\nWatchdogSec=2\n" >/etc/systemd/system/reel-generator.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart reel-generator.service'
	was=$(pid)
	within sh -c "kill -STOP $was"
	alive "$was"
	within journalctl -u reel-generator --no-pager | grep -q 'Watchdog timeout' || fail "it was not the watchdog"
	test -n "$(ask "$1")" || fail "no text came after the watchdog"

	echo "reload"
	within sh -c 'echo REEL_MAX_REQUESTS=7 >>/etc/reel/generator.env && systemctl reload reel-generator'
	eventually sh -c "nsenter -t $init -m -p -r reel status --json | grep -q '\"requests\":7'"
}
