#!/bin/sh
# Measures guessed tokens on this machine's GPU, with random checkpoints at published shapes: speed and time of a step
# by an oracle's acceptance, at 250 and at 4,000 positions and with 8 streams; the loss where nothing is ever accepted;
# the start; the ops of a verify pass. Tokens and log-probabilities are compared bit for bit throughout. It prints a
# table last; the rest goes to OUT. It needs the binaries of make cuda, a driver, and Python with numpy; no Go.
# usage: sh bench/tools/speculate_gpu.sh BIN OUT [PART...]: all parts, or some of: steps long streams nothing start model draft eagle
set -u
bin=$1
out=$2
shift 2
test $# -gt 0 || set -- steps long streams nothing start model draft eagle
tools=$(dirname "$0")
mkdir -p "$out"
table=$out/speculate.txt
: >"$table"

. "$tools/measuring.sh"

seven="--model /tmp/llama-2-7b"

# speculate SECONDS NAME FLAGS... measures and adds its tables to the script's.
speculate() {
	limit=$1 label=$2
	shift 2
	run "$limit" "speculate-$label" speculate "$@"
	echo "$label" >>"$table"
	"$bin/reel-bench" show "$out/speculate-$label.json" >>"$table" 2>&1
}

steps() {
	checkpoint llama-2-7b
	speculate 150 steps $seven --acceptance 0,0.6,0.68,0.78,1 --prompts 3 --rounds 2 --prompt-tokens 250 --max-tokens 256 -- --max-seq-len 2048
}

long() {
	checkpoint llama-2-7b
	speculate 120 long $seven --acceptance 0,0.68 --prompts 2 --rounds 2 --prompt-tokens 4000 --max-tokens 96 -- --max-seq-len 4096 --max-batch 2
}

streams() {
	checkpoint llama-2-7b
	speculate 120 streams $seven --streams 8 --acceptance 0,0.68 --prompts 2 --rounds 2 --prompt-tokens 100 --max-tokens 256 -- --max-seq-len 2048 --max-batch 8
}

# nothing lets the lookup drafter guess what a model of random weights says, which it never does.
nothing() {
	checkpoint llama-2-7b
	speculate 120 nothing $seven --prompts 3 --rounds 3 --prompt-tokens 10 --max-tokens 512 -- --max-seq-len 2048
}

start() {
	checkpoint llama-2-7b
	for draft in off lookup; do
		run 40 "start-$draft" startup $seven --runs 4 -- --max-seq-len 2048 --draft $draft
	done
	"$bin/reel-bench" compare "$out/start-off.json" "$out/start-lookup.json" >>"$table" 2>&1
}

# model has a model of 1B guess for one of 8B: its guesses are as random as both, so that this is what they cost.
model() {
	checkpoint llama-3.1-8b
	checkpoint llama-3.2-1b
	speculate 150 model --model /tmp/llama-3.1-8b --prompts 3 --rounds 2 --max-tokens 128 -- --max-seq-len 2048 --draft /tmp/llama-3.2-1b
}

# oracle DRAFTER NAME measures a drafter's passes beside guesses of a given acceptance, with 7 and with 3 of them a step,
# and with 8 streams.
oracle() {
	for tokens in 7 3; do
		speculate 100 "$2-$tokens" --model /tmp/llama-3.1-8b --acceptance 0.6,0.7,0.8 --draft $tokens --prompts 2 --rounds 2 --prompt-tokens 250 --max-tokens 192 -- --max-seq-len 2048 --draft "given:$1"
	done
	speculate 100 "$2-streams" --model /tmp/llama-3.1-8b --acceptance 0.7 --draft 3 --streams 8 --prompts 1 --rounds 2 --prompt-tokens 100 --max-tokens 192 -- --max-seq-len 2048 --max-batch 8 --draft "given:$1"
}

# draft and eagle measure what a draft model of 1B and an EAGLE-3 head of published shape gain for a model of 8B.
draft() {
	checkpoint llama-3.1-8b
	checkpoint llama-3.2-1b
	oracle /tmp/llama-3.2-1b draft
}

eagle() {
	checkpoint llama-3.1-8b
	checkpoint eagle3-llama-3.1-8b
	oracle /tmp/eagle3-llama-3.1-8b eagle
	speculate 100 eagle --model /tmp/llama-3.1-8b --prompts 3 --rounds 2 --max-tokens 128 -- --max-seq-len 2048 --draft /tmp/eagle3-llama-3.1-8b
}

for part in "$@"; do
	$part
done
cat "$table"
