#!/bin/sh
# Measures on this machine's GPU, over HTTP, the first token of a 7B that slept, its file in the page cache (limit 1.3 s),
# and two 7B in turn of which the GPU holds one, each woken by its name (limit 2 s); then both again with the default host
# cache, whose pinned memory a start and an end take too. The limits are those of an H200. activate.py plays systemd. It
# prints a table last; the rest goes to OUT. It needs the binaries of make cuda, a driver, and Python with numpy and
# torch; no Go. DEVICE=host with MODEL=DIR and SIZES tries it without a GPU, where the part turn needs a reel-generator with
# the tag fault and REEL_FAULT_CLAIM=FILE, which one model at a time has.
# usage: sh bench/tools/sleep_gpu.sh BIN OUT [PART...]: all parts, or some of: woken turn cached
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- woken turn cached
tools=$(dirname "$0")
mkdir -p "$out"
table=$out/sleep.txt
: >"$table"

. "$tools/measuring.sh"

model=${MODEL:-/tmp/llama-2-7b}
test -n "${MODEL:-}" || checkpoint llama-2-7b
cat "$model"/*.safetensors >/dev/null # into the page cache

# sleepers NAME N PART... measures the parts, each N times. The batch's pool of KV pages fills the GPU, so one model fits.
sleepers() {
	name=$1 n=$2 flags=$3
	shift 3
	directory=$(mktemp -d /tmp/reel-sleep.XXXXXX)
	python3 "$tools/activate.py" "$directory" "$bin/reel-generator" "a=$model" "b=$model" -- --device "${DEVICE:-cuda}" \
		${SIZES:---max-seq-len 4096 --max-batch 64} --idle-exit 10m --log-level warn $flags >"$out/$name-starts.log" 2>&1 &
	activator=$!
	"$bin/reel-gateway" --listen 127.0.0.1:18080 --open-loopback --stay 500ms \
		--generator "a=$directory/a.sock" --generator "b=$directory/b.sock" 2>"$out/$name-gateway.log" &
	gateway=$!
	sleep 1
	for part in "$@"; do
		names=a limit=1.3
		test "$part" = woken || { names=a,b limit=2; }
		timeout -k 5 150 python3 "$tools/sleep.py" "$part" http://127.0.0.1:18080 "$directory" "$bin/reel" "$names" "$n" \
			"$limit" 2>&1 | sed "s/^/$name: /" >>"$table"
	done
	kill $gateway $activator 2>/dev/null
	wait $gateway $activator
	cp "$directory"/*.log "$out/" 2>/dev/null
	rm -rf "$directory"
}

woken() { sleepers woken 5 "--host-cache 0" woken; }
turn() { sleepers turn 10 "--host-cache 0" turn; }
cached() { sleepers cached 4 "" woken turn; }

for part in "$@"; do
	$part
done
cat "$table"
