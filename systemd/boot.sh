# Functions for tests that run the units under a separate systemd, in the Debian system at
# $root, in namespaces of its own, so that this machine is not affected. Test scripts source
# this file. They set $work, a folder that cleanup removes.
init= # process id of that systemd; empty: none runs

cleanup() {
	test -z "$init" || kill -KILL "$init" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}

fail() {
	echo "FAIL: $*" >&2
	test -z "$init" || within journalctl -u reel-generator -u reel-gateway --no-pager -n 30 >&2 || true
	exit 1
}

# within runs a command in the Debian system: in its systemd's namespaces, or in a chroot.
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
	fail "still fails: $*"
}

# boot starts systemd; it returns 1 if namespaces do not allow that. NVIDIA's device nodes and
# driver of this machine are mounted, if there are any.
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

# ask prints a completion as the user $1, who need not have logged in since the installation.
ask() { within su "$1" -c 'cd / && sg reel -c "reel --max-tokens 8 --wait 20s ROMEO:"'; }
pid() { within systemctl show -P MainPID reel-generator; }

# restarted waits until the service runs as another process than $1.
restarted() {
	eventually within sh -c "test \"\$(systemctl show -P MainPID reel-generator)\" != $1 && systemctl is-active reel-generator.service"
}

# add_users adds users who may use sudo.
add_users() {
	for name in "$@"; do
		within useradd -m "$name"
		echo "$name ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$name"
	done
}

# test_restarts checks that the service recovers from being killed and from hanging, and that
# it can be reloaded. $1 is a user who may connect.
test_restarts() {
	echo "the service is killed: its socket stays, and it serves again"
	before=$(within stat -c %i /run/reel/generator.sock) was=$(pid)
	within systemctl kill -s KILL reel-generator.service
	test -n "$(ask "$1")" || fail "no text after a restart"
	test "$(within stat -c %i /run/reel/generator.sock)" = "$before" || fail "the socket was replaced"
	test "$(pid)" != "$was" || fail "the old process still runs"

	echo "the engine is stopped: the watchdog ends the service, and it serves again"
	within sh -c 'printf "[Service]\nWatchdogSec=2\n" >/etc/systemd/system/reel-generator.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart reel-generator.service'
	was=$(pid)
	within sh -c "kill -STOP $was"
	restarted "$was"
	within journalctl -u reel-generator --no-pager | grep -q 'Watchdog timeout' || fail "the watchdog did not end it"
	test -n "$(ask "$1")" || fail "no text after the watchdog"

	echo "reload"
	within sh -c 'echo REEL_MAX_REQUESTS=7 >>/etc/reel/generator.env && systemctl reload reel-generator'
	eventually sh -c "nsenter -t $init -m -p -r reel status --json | grep -q '\"requests\":7'"
}

# asleep waits until the service has ended by itself, successfully, and its socket waits.
asleep() {
	eventually within sh -c 'test "$(systemctl show -P ActiveState reel-generator)" = inactive'
	test "$(within systemctl show -P Result reel-generator) $(within systemctl show -P ExecMainStatus reel-generator)" = "success 0" || fail "it did not end with 0"
	within systemctl is-active reel-generator.socket >/dev/null || fail "the socket is closed"
}

# test_sleep checks that the service ends if nobody asks, that nothing wakes it but requests,
# and that each of $2 requests, $3 seconds apart, does. $1 is a user who may connect.
test_sleep() {
	echo "nobody asks: the service ends, and only requests wake it"
	within sh -c 'printf "REEL_IDLE_EXIT=500ms\nREEL_METRICS=127.0.0.1:9464\n" >>/etc/reel/generator.env && systemctl restart reel-generator'
	asleep
	within reel --wait 0 status | grep -q '^state *sleeping' || fail "reel status does not say that it sleeps"
	within reel --wait 0 status --json | grep -q '"state":"sleeping"' || fail "the record does not say that it sleeps"
	within su "$1" -c 'cd / && sg reel -c "reel top -n 2 --interval 100ms"' | grep -q sleep || fail "reel top does not say that it sleeps"
	within reel doctor >"$work/doctor.log" 2>&1 && grep -q sleep "$work/doctor.log" || { cat "$work/doctor.log"; fail "reel doctor"; }
	within reel-generator doctor --device host >"$work/doctor.log" 2>&1 && grep -q sleep "$work/doctor.log" || { cat "$work/doctor.log"; fail "reel-generator doctor"; }
	! within bash -c 'exec 3<>/dev/tcp/127.0.0.1/9464' 2>/dev/null || fail "the address of the metrics answers"
	test "$(within systemctl show -P ActiveState reel-generator)" = inactive || fail "it is awake"

	echo "$2 wakes, $3 s apart"
	for i in $(seq "$2"); do
		began=$(date +%s)
		test -n "$(ask "$1")" || fail "wake $i: no text"
		asleep
		left=$(($3 - $(date +%s) + began))
		test "$left" -le 0 || sleep "$left"
	done

	echo "connections that come while it ends are served by the next start"
	within sh -c 'printf "[Service]\nExecStopPost=sleep 2\n" >/etc/systemd/system/reel-generator.service.d/slow.conf && systemctl daemon-reload && systemctl start reel-generator'
	eventually within sh -c 'test "$(systemctl show -P SubState reel-generator)" = stop-post'
	clients=
	for i in 1 2 3; do
		ask "$1" >"$work/answer.$i" &
		clients="$clients $!"
	done
	wait $clients
	for i in 1 2 3; do test -s "$work/answer.$i" || fail "connection $i: no text"; done
	asleep
	within sh -c 'rm /etc/systemd/system/reel-generator.service.d/slow.conf && sed -i "/^REEL_IDLE_EXIT=/d; /^REEL_METRICS=/d" /etc/reel/generator.env && systemctl daemon-reload && systemctl start reel-generator'
}
