#!/bin/sh
# Writes the man pages and the completions of all programs below DIR.
# usage: sh systemd/manual/write.sh DIR
set -eu
cd "$(dirname "$0")/../.."
for program in ./client/cmd/reel ./client/cmd/reel-gateway ./generator ./bench/cmd/reel-bench; do
	"${GO:-go}" run -trimpath -tags manual "$program" "$1"
done
