#!/bin/sh
# Trains a target of 34 million parameters, a smaller model and an EAGLE-3 head on this machine's GPU, and measures how
# many tokens a step gives with each drafter, beside reference implementations on the same checkpoints. It prints a
# table last, which acceptance.py explains; OUT gets it too. It needs the binaries of make cuda, a driver, and Python
# with torch 2.11, transformers 5 and tokenizers; no Go, no network. DEVICE=host tries it with a tiny target on a CPU.
# usage: sh bench/tools/acceptance_gpu.sh BIN OUT CORPUS [FLAG...]
#   CORPUS is tiny Shakespeare, perhaps gzipped; flags are acceptance.py's. Checkpoints stay in MODELS, if that is set:
#   a second run with the same MODELS does not train.
set -u
bin=$1
out=$2
corpus=$3
shift 3
tools=$(dirname "$0")
device=${DEVICE:-cuda}
mkdir -p "$out"
models=${MODELS:-$(mktemp -d)}
export TOKENIZERS_PARALLELISM=false

size=
if test "$device" = host; then
	size=--tiny
	export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
fi

# seconds NAME LIMIT COMMAND... runs a command, whose output goes on and to OUT/NAME.txt, errors to OUT/NAME.log.
seconds() {
	name=$1 limit=$2 begun=$(date +%s)
	shift 2
	{
		timeout -k 5 "$limit" "$@" 2>"$out/$name.log"
		echo $? >"$out/$name.rc"
	} | tee "$out/$name.txt"
	rc=$(cat "$out/$name.rc")
	rm "$out/$name.rc"
	echo "$name: $(($(date +%s) - begun)) s, exit $rc"
	test "$rc" = 0 || tail -n 5 "$out/$name.log"
	return "$rc"
}

test -e "$models/prompts.json" ||
	seconds train 300 python3 -u "$tools/train_drafts.py" $size --corpus "$corpus" --out "$models" || exit
seconds acceptance 270 python3 -u "$tools/acceptance.py" "$models" --generator "$bin/reel-generator" \
	--device "$device" "$@"
rc=$?
test -n "${MODELS:-}" || rm -r "$models"
exit $rc
