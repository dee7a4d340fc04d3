#!/bin/sh
# Serves the embedded model over HTTP at ADDRESS: while COMMAND runs, which finds the gateway's URL in
# REEL_URL, or until Ctrl-C.
# usage: sh client/gateway/run.sh BIN ADDRESS [COMMAND...]
set -eu
bin=$1 address=$2
shift 2
for name in $(env | sed -n 's/^\(REEL_[A-Z_]*\)=.*/\1/p'); do
	case $name in REEL_TEST_*) ;; *) unset "$name" ;; esac
done
dir=$(mktemp -d /tmp/reel.XXXXXX) # short: a socket's path has at most 107 bytes
trap 'kill $generator $gateway 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
"$bin/reel-generator" --socket "$dir/generator.sock" --device host --log-level warn \
	--chat-template generator/tiny/plain.jinja &
generator=$! gateway=
"$bin/reel-gateway" --listen "$address" --generator "$dir/generator.sock" >"$dir/addresses" &
gateway=$!
until test -s "$dir/addresses"; do
	kill -0 $gateway 2>/dev/null || exit 1 # it has said why
	sleep 0.1
done
"$bin/reel" --socket "$dir/generator.sock" --wait 20s tokenize x >/dev/null # answered once it serves
address=$(sed -n 's/^listening on //p' "$dir/addresses")
export REEL_URL="http://$address"
if test $# -gt 0; then
	"$@"
	exit
fi
echo "The page is at $REEL_URL/, OpenAI's API below $REEL_URL/v1. Ctrl-C ends it."
wait $gateway
