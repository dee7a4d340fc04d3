#!/bin/sh
# Measures random checkpoints on this machine's GPU and writes the results of reel-bench
# --json to OUT: copy them to bench/results/MACHINE and run make bench-report. It needs the
# binaries of make cuda, a driver, and Python with numpy and torch; no Go.
# usage: sh bench/tools/measure_gpu.sh BIN OUT [SHAPE...]
#   SHAPE is one of random_checkpoint.py's: llama-2-7b and llama-3.2-1b by default.
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- llama-2-7b llama-3.2-1b
tools=$(dirname "$0")
mkdir -p "$out"

. "$tools/measuring.sh"

for shape in "$@"; do
	model=/tmp/$shape
	checkpoint "$shape"
	run 90 "latency-$shape" latency --model "$model" --max-tokens 64 -- --max-seq-len 2048
	run 60 "ops-$shape" ops --model "$model" -- --max-seq-len 2048
	run 60 "startup-$shape" startup --model "$model" --runs 3 -- --max-seq-len 2048
	run 60 "roll-$shape" roll --model "$model" --phases 4 -- --max-seq-len 2048
	run 90 "throughput-$shape" throughput --model "$model" --duration 2s --warmup 500ms -- --max-seq-len 2048
done
for f in "$out"/latency-*.json "$out"/ops-*.json; do
	test -e "$f" && "$bin/reel-bench" show "$f"
done
