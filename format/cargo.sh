#!/bin/sh
# Runs cargo for reel-format as every build does: with the versions of Cargo.lock, and statically, so that the
# program runs on any Linux.
# usage: sh format/cargo.sh COMMAND [OPTION...]
set -eu
command=$1
shift
cd "$(dirname "$0")"
cargo=${CARGO:-cargo}
host=$("$cargo" -vV | sed -n 's/^host: //p')
RUSTFLAGS="-C target-feature=+crt-static" CARGO_TARGET_DIR=$PWD/../.build/format exec "$cargo" "$command" --quiet --locked \
	--target "$host" "$@"
