#!/bin/sh
# Measures on this machine's GPU what a JSON Schema costs the stream that has it and the stream beside that, with random
# checkpoints at published shapes: 7B with 32,000 tokens, 8B with 128,256. It prints a table last; the rest goes to OUT.
# It needs the binaries of make cuda with reel-format, a driver, and Python with numpy and torch; no Go.
# usage: sh bench/tools/format_gpu.sh BIN OUT [SHAPE...]: llama-2-7b and llama-3.1-8b, or those named
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- llama-2-7b llama-3.1-8b
tools=$(dirname "$0")
mkdir -p "$out"
table=$out/format.txt
: >"$table"

. "$tools/measuring.sh"

for shape in "$@"; do
	checkpoint "$shape"
	directory=/tmp/$shape-format
	mkdir -p "$directory"
	ln -sf "/tmp/$shape/model.safetensors" "$directory/"
	cp "/tmp/$shape/config.json" "$directory/"
	python3 "$tools/format.py" tokenizer "$directory"
	"$bin/reel-generator" --device "${DEVICE:-cuda}" --model "$directory" --socket "/tmp/reel-format-$shape.sock" \
		--max-seq-len 2048 --max-batch 8 --log-level warn 2>"$out/format-$shape.log" &
	generator=$!
	timeout -k 5 120 python3 "$tools/format.py" measure "/tmp/reel-format-$shape.sock" "${shape##*-}" >>"$table" 2>>"$out/format-$shape.log" ||
		echo "$shape: exit $?: $(tail -n 1 "$out/format-$shape.log")" >>"$table"
	kill $generator 2>/dev/null
	wait $generator
done
cat "$table"
