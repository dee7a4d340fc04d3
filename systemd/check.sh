#!/bin/sh
# Checks the units in a staged root: systemd understands every line, and each service's
# exposure stays below a bound. Needs systemd-analyze (Debian: systemd).
set -eu
cd "$(dirname "$0")"
command -v systemd-analyze >/dev/null || { echo "checking the units needs systemd-analyze: apt-get install systemd" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
units=$root/usr/lib/systemd/system
mkdir -p "$units" "$root/usr/bin" "$root/bin" "$root/etc"
cp reel-generator.service reel-generator.socket reel-generator@.service reel-generator@.socket reel-gateway.service "$units/"
# Units of every system, and the programs that our units name.
for unit in sysinit.target basic.target shutdown.target sockets.target multi-user.target network.target; do
	printf '[Unit]\nDescription=%s\n' "$unit" >"$units/$unit"
done
for program in usr/bin/reel-generator usr/bin/reel-gateway usr/bin/nvidia-modprobe bin/sh; do
	printf '#!/bin/sh\n' >"$root/$program"
	chmod +x "$root/$program"
done
said=$(systemd-analyze verify --man=no --root="$root" reel-generator.service reel-generator.socket \
	reel-generator@tiny.service reel-generator@tiny.socket reel-gateway.service 2>&1) || { echo "$said"; exit 1; }
# It also succeeds if it ignores a line.
if echo "$said" | grep -e reel-generator -e reel-gateway; then exit 1; fi
for service in reel-generator reel-generator@tiny reel-gateway; do
	security="systemd-analyze security --offline=true --threshold=${1:-30} --no-pager --root=$root $service.service"
	$security | tail -n 1
	$security >/dev/null
done
