#!/bin/sh
# Measures quantised weights on this machine's GPU, with random files at published shapes: decode of the first 256
# tokens, the time to the first token of 10 to 400, and the step of 8 streams beside that of one, each through the
# socket. It prints a table last; the rest goes to OUT. It needs the binaries of make cuda, a driver, and Python with
# numpy; no Go. Files go to $MODELS (/tmp) and are removed after their part. DEVICE=host LAYERS=1 tries it anywhere.
# usage: sh bench/tools/quantised_gpu.sh BIN OUT [PART...]: all parts, or some of: bf16 7b-FORMAT 1b-FORMAT 8b-FORMAT
#   70b-FORMAT, where FORMAT is one of random_gguf.py, or hf- and one of random_quantised.py. By default bf16 7b-q8_0
#   7b-q4_0 7b-q4_k 7b-q6_k 1b-q8_0 1b-q4_k 70b-q4_k.
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- bf16 7b-q8_0 7b-q4_0 7b-q4_k 7b-q6_k 1b-q8_0 1b-q4_k 70b-q4_k
models=${MODELS:-/tmp}
tools=$(dirname "$0")
mkdir -p "$out"

. "$tools/measuring.sh"

counts=10,50,100,200,400

# speeds NAME MODEL measures a model that fits easily.
speeds() {
	run 40 "decode-$1" latency --model "$2" --prompts 10 --max-tokens 257 --runs 4 -- --max-seq-len 2048
	# Tokens between prompts: of nothing but prompts of 400 the GPU would lower its clock.
	run 60 "ttft-$1" latency --model "$2" --prompts $counts --max-tokens 17 --runs 25 -- --max-seq-len 2048 --precapture $counts
	run 40 "batch-$1" throughput --model "$2" --concurrency 1,8 --prompt-tokens 16 --output-tokens 256 --duration 3s --warmup 1s -- --max-seq-len 2048 --max-batch 8
}

# gguf SHAPE FORMAT FILE writes a random file, or a directory of a Hugging Face format (hf-FORMAT).
gguf() {
	begun=$(date +%s) kind=--gguf
	case $2 in hf-*) kind=--quantise ;; esac
	timeout -k 5 300 python3 "$tools/random_checkpoint.py" "$1" "$3" $kind "${2#hf-}" ${LAYERS:+--layers "$LAYERS"} >/dev/null || return 1
	echo "$3: $(($(date +%s) - begun)) s"
}

# largest NAME FILE plans, loads and decodes a model that fills half of the GPU's memory or more.
largest() {
	"$bin/reel-generator" plan --device "${DEVICE:-cuda}" --model "$2" --max-seq-len 4096 --max-batch 4 >"$out/plan-$1.txt" 2>&1
	echo "plan-$1: exit $?"
	run 120 "startup-$1" startup --model "$2" --runs 1 -- --max-seq-len 4096 --max-batch 4
	run 120 "decode-$1" latency --model "$2" --prompts 10,100,400 --max-tokens 129 --runs 3 -- --max-seq-len 4096 --max-batch 4
	run 120 "ops-$1" ops --model "$2" -- --decode 1,8 --prefill 100 --max-seq-len 4096 --max-batch 8
}

for part in "$@"; do
	shape=${part%%-*} format=${part#*-} file=$models/$part.gguf
	case $format in hf-*) file=$models/$part ;; esac
	case $shape in
	bf16) checkpoint llama-2-7b && speeds 7b-bf16 /tmp/llama-2-7b && continue ;;
	7b) gguf llama-2-7b "$format" "$file" && speeds "$part" "$file" ;;
	1b) gguf llama-3.2-1b "$format" "$file" && speeds "$part" "$file" ;;
	8b) gguf llama-3.1-8b "$format" "$file" && speeds "$part" "$file" ;;
	70b) gguf llama-3-70b "$format" "$file" && largest "$part" "$file" ;;
	*) echo "$part: no such part" ;;
	esac
	rm -rf "$file"
done
python3 "$tools/quantised.py" "$out" | tee "$out/quantised.txt"
