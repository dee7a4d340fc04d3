#!/bin/sh
# Measures on this machine's GPU how close Reel comes to the limits of an H200, with random
# checkpoints at published shapes. It writes the results of reel-bench --json to OUT and
# prints them with reel-bench limits. It needs the binaries of make cuda, a driver, and
# Python with numpy and torch; no Go. Each mode takes less than 150 s on an H200.
# usage: sh bench/tools/limit_gpu.sh BIN OUT [main|families]
set -u
bin=$1
out=$2
mode=${3:-main}
tools=$(dirname "$0")
mkdir -p "$out"

. "$tools/measuring.sh"

# longer FROM TO TOKENS makes a checkpoint of the same weights with a longer context.
longer() {
	mkdir -p "$2"
	ln -sf "$1/model.safetensors" "$2/"
	sed "s/\"max_position_embeddings\": *[0-9]*/\"max_position_embeddings\": $3/" "$1/config.json" >"$2/config.json"
}

main() {
	checkpoint llama-2-7b
	checkpoint llama-3.2-1b
	longer /tmp/llama-2-7b /tmp/llama-2-7b-16k 16384
	seven="--model /tmp/llama-2-7b"
	counts="10,50,100,200,400"
	run 30 decode-7b latency $seven --prompts 10 --max-tokens 257 --runs 6 -- --max-seq-len 2048
	run 20 decode-1b latency --model /tmp/llama-3.2-1b --prompts 10 --max-tokens 257 --runs 6 -- --max-seq-len 2048
	# Tokens between prompts: of nothing but prompts of 400 the GPU would lower its clock.
	run 60 ttft-7b latency $seven --prompts $counts --max-tokens 17 --runs 110 -- --max-seq-len 2048 --precapture $counts
	run 30 padded-7b latency $seven --prompts $counts --max-tokens 17 --runs 20 -- --max-seq-len 2048 --precapture 16,64,112,208,400 --roller off
	run 30 eager-7b latency $seven --prompts $counts --max-tokens 17 --runs 20 -- --max-seq-len 2048 --precapture 1 --roller off
	run 40 roll-7b roll $seven --phases 3 --requests 24 -- --max-seq-len 2048
	run 25 graphs-7b startup $seven --runs 1 -- --max-seq-len 2048 --max-batch 8 --precapture 1-250
	run 25 start-7b startup $seven --runs 2 -- --max-seq-len 2048
	run 40 context-7b latency --model /tmp/llama-2-7b-16k --prompts 16000 --max-tokens 64 --runs 2 -- --max-seq-len 16384 --max-batch 2
	run 25 batch-7b throughput $seven --concurrency 8 --prompt-tokens 16 --output-tokens 256 --duration 4s --warmup 1s -- --max-seq-len 2048 --max-batch 8
}

families() {
	for shape in qwen2.5-0.5b qwen3-4b llama-3.1-8b phi-3-mini; do
		checkpoint $shape
		run 30 family-$shape latency --model /tmp/$shape --prompts 10 --max-tokens 257 --runs 4 -- --max-seq-len 2048
		rm -rf "/tmp/$shape"
	done
}

$mode
"$bin/reel-bench" limits "$out"
