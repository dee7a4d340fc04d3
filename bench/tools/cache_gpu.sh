#!/bin/sh
# Measures the prefix cache and the host tier on this machine's GPU, with random checkpoints at published shapes:
# the time to the first token behind a long prefix that is on the device or in host memory, the rate of copies
# beside that of pinned memory, and the gaps of a running stream while pages are loaded. Then, with nothing to find,
# first token, gaps and start, with the cache and without. It prints a table last; the rest goes to OUT.
# It needs the binaries of make cuda, a driver, and Python with numpy and torch; no Go.
# usage: sh bench/tools/cache_gpu.sh BIN OUT [PART...]: all parts, or some of: seven reread eight nothing
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- seven reread eight nothing
tools=$(dirname "$0")
mkdir -p "$out"
table=$out/cache.txt
: >"$table"

. "$tools/measuring.sh"

# prefix NAME MODEL PREFIXES FLAGS... starts a generator with a host tier and measures it by cache.py. The pool
# holds as many sequences of the longest context as run at once, so that prefixes soon leave the device.
prefix() {
	name=$1 model=$2 prefixes=$3
	shift 3
	"$bin/reel-generator" --device cuda --model "$model" --socket "/tmp/reel-cache-$name.sock" --log-level warn "$@" 2>"$out/$name.log" &
	generator=$!
	timeout -k 5 240 python3 "$tools/cache.py" "/tmp/reel-cache-$name.sock" "$name" "$prefixes" >>"$table" 2>>"$out/$name.log" ||
		echo "$name: exit $?: $(tail -n 1 "$out/$name.log")" >>"$table"
	kill $generator 2>/dev/null
	wait $generator
}

seven() {
	checkpoint llama-2-7b
	prefix 7b /tmp/llama-2-7b 4000 --max-seq-len 4096 --max-batch 4 --host-cache 16GiB
}

reread() {
	checkpoint llama-2-7b
	prefix reread /tmp/llama-2-7b 0 --max-seq-len 4096 --max-batch 4 --reread all
}

eight() {
	checkpoint llama-3.1-8b
	prefix 8b /tmp/llama-3.1-8b 4000,100000 --max-seq-len 110000 --max-batch 2 --host-cache 40GiB
}

nothing() {
	checkpoint llama-2-7b
	seven="--model /tmp/llama-2-7b"
	for cache in on off; do
		flags=
		test $cache = on || flags="--cache-scope off --host-cache 0"
		run 60 "nothing-$cache" latency $seven --prompts 10,100,400 --max-tokens 129 --runs 20 -- --max-seq-len 2048 $flags
		run 40 "start-$cache" startup $seven --runs 4 -- --max-seq-len 2048 $flags
	done
	for what in nothing start; do
		"$bin/reel-bench" compare "$out/$what-off.json" "$out/$what-on.json" >>"$table" 2>&1
	done
}

for part in "$@"; do
	$part
done
cat "$table"
