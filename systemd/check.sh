#!/bin/sh
# Checks the units in a staged root: systemd understands every line, and the service's
# exposure stays below a bound. Needs systemd-analyze (Debian: systemd).
set -eu
cd "$(dirname "$0")"
command -v systemd-analyze >/dev/null || { echo "checking the units needs systemd-analyze: apt-get install systemd" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
units=$root/usr/lib/systemd/system
mkdir -p "$units" "$root/usr/bin" "$root/bin" "$root/etc"
cp reel-generator.service reel-generator.socket "$units/"
# Units of every system, and the programs that our units name.
for unit in sysinit.target basic.target shutdown.target sockets.target multi-user.target; do
	printf '[Unit]\nDescription=%s\n' "$unit" >"$units/$unit"
done
for program in usr/bin/reel-generator usr/bin/nvidia-modprobe bin/sh; do
	printf '#!/bin/sh\n' >"$root/$program"
	chmod +x "$root/$program"
done
said=$(systemd-analyze verify --man=no --root="$root" reel-generator.service reel-generator.socket 2>&1) || { echo "$said"; exit 1; }
# It also succeeds if it ignores a line.
if echo "$said" | grep reel-generator; then exit 1; fi
systemd-analyze security --offline=true --threshold="${1:-30}" --no-pager --root="$root" reel-generator.service | tail -n 1
systemd-analyze security --offline=true --threshold="${1:-30}" --no-pager --root="$root" reel-generator.service >/dev/null
