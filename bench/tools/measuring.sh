# Functions of the scripts that measure on a GPU machine, which set bin, out and tools. DEVICE=host tries them without a GPU.

# run SECONDS NAME COMMAND FLAGS... runs reel-bench COMMAND and writes the result to
# $out/NAME.json. It ends a command that takes longer than SECONDS, and says so.
run() {
	limit=$1
	name=$2
	command=$3
	shift 3
	begun=$(date +%s)
	if timeout -k 5 "$limit" "$bin/reel-bench" "$command" --generator "$bin/reel-generator" --device "${DEVICE:-cuda}" --json "$@" >"$out/$name.json.new" 2>"$out/$name.log"; then
		mv "$out/$name.json.new" "$out/$name.json"
		echo "$name: $(($(date +%s) - begun)) s"
	else
		echo "$name: exit $?: $(tail -n 1 "$out/$name.log")"
		rm -f "$out/$name.json.new"
	fi
}

# checkpoint SHAPE writes the checkpoint to /tmp, unless it exists.
checkpoint() {
	begun=$(date +%s)
	test -e "/tmp/$1/config.json" || timeout -k 5 120 python3 "$tools/random_checkpoint.py" "$1" "/tmp/$1" >/dev/null || exit 1
	echo "/tmp/$1: $(($(date +%s) - begun)) s"
}
