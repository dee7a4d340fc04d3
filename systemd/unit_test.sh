#!/bin/sh
# Tests the real unit of a package on this machine's GPU, under a separate systemd in a
# separate Debian system, so that the machine needs neither. Checks that the unit serves, has
# the devices that it needs and no other, recovers from being killed and from hanging, can be
# reloaded, and has metrics of the GPU. Needs root, namespaces and xz.
# usage: sh systemd/unit_test.sh DEBIAN.tar.xz REEL.deb; the archive contains the result of
# debootstrap --variant=minbase --include=systemd,systemd-sysv,sudo bookworm
set -eu
here=$(dirname "$0")
work=$(mktemp -d /var/tmp/reel-unit.XXXXXX)
root=$work/root
. "$here/boot.sh"
trap cleanup EXIT
trap 'exit 1' INT TERM
mkdir "$root"
tar -C "$root" -xf "$1"
mkdir -p "$root/srv/packages"
cp "$2" "$root/srv/packages/reel.deb"
add_users ada
boot || { echo "systemd does not run here:" && tail -n 20 "$work/boot.log" && exit 77; }
echo "$(within systemctl --version | head -n 1) runs in it; cgroups: $(grep -c . "/proc/$init/cgroup") hierarchies"
device=${DEVICE:-cuda}
if test "$device" != cuda; then
	within mkdir -p /etc/systemd/system/reel-generator.service.d
	{ echo "[Service]"; echo ExecStart=; sed -n "s/^\(ExecStart=.*\)--device cuda/\1--device $device/p" "$here/reel-generator.service"; } \
		>"$root/etc/systemd/system/reel-generator.service.d/device.conf"
fi

echo "two commands to the first token"
within su ada -c 'cd /srv/packages && sudo apt-get install -y ./reel.deb' >"$work/apt.log" 2>&1 || { cat "$work/apt.log"; fail "apt-get install"; }
test -n "$(within su ada -c "sg reel -c 'reel \"ROMEO:\"'")" || fail "no text"
within systemctl show -P StatusText reel-generator
within systemctl show -P StatusText reel-generator | grep -q "^ready: .* on $device" || fail "it is not ready on $device"
within su ada -c 'sg reel -c "reel status"' | head -n 12
within reel-generator vram --socket /run/reel/generator.sock
within reel-generator doctor || true
echo "open device nodes of the GPU: $(within sh -c "ls -l /proc/$(pid)/fd" | grep -o '/dev/nvidia.*' | sort -u | tr '\n' ' ')"
within sh -c "grep -E 'Seccomp|NoNewPrivs|CapEff' /proc/$(pid)/status"

mkdir -p "$root/etc/systemd/system/reel-generator.service.d"
test_restarts ada
test_sleep ada "${REEL_WAKES:-20}" "${REEL_WAKE_EVERY:-0}"

echo "metrics"
within sh -c 'echo REEL_METRICS=127.0.0.1:9464 >>/etc/reel/generator.env && systemctl restart reel-generator'
test -n "$(ask ada)" || fail "no text"
within bash -c 'exec 3<>/dev/tcp/127.0.0.1/9464; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' >"$work/metrics"
grep -c '^reel_' "$work/metrics"
grep '^reel_gpu' "$work/metrics" || test "$device" != cuda || fail "there are no metrics of the GPU"

if test "$device" = cuda; then
	for rule in char-nvidia char-nvidia-uvm; do
		echo "without DeviceAllow=$rule"
		{ echo "[Service]"; echo DeviceAllow=; grep '^DeviceAllow=' "$here/reel-generator.service" | grep -v "=$rule rw"; } \
			>"$root/etc/systemd/system/reel-generator.service.d/nodes.conf"
		within systemctl daemon-reload
		within systemctl restart reel-generator >/dev/null 2>&1 && fail "it serves without $rule: DeviceAllow does not restrict it"
		within journalctl -u reel-generator --no-pager -n 3 -o cat
		within reel --wait 0 status | grep -E '^(state|reason)' || true
	done
	rm "$root/etc/systemd/system/reel-generator.service.d/nodes.conf"
	within sh -c 'systemctl daemon-reload && systemctl reset-failed reel-generator.service reel-generator.socket && systemctl start reel-generator.socket'
	test -n "$(ask ada)" || fail "no text"
fi
within su ada -c 'sudo apt-get purge -y reel' >"$work/apt.log" 2>&1 || { cat "$work/apt.log"; fail "apt-get purge"; }
within journalctl -u reel-generator --no-pager -p warning -o cat | sort | uniq -c
echo "ok"
