#!/bin/sh
# Builds reel-format into BIN where a cargo that can is found; otherwise says in one line what will be missing.
# usage: sh format/build.sh BIN
set -eu
bin=$1
cd "$(dirname "$0")/.."
needs=1.87 # llguidance's oldest Rust
found=$("${CARGO:-cargo}" --version 2>/dev/null | cut -d ' ' -f 2) || found=
if test "$(printf '%s\n' "$needs" "$found" | sort -V | head -n 1)" != "$needs"; then
	echo "reel-format is not built, so requests with a format will be refused: it needs cargo $needs or newer" \
		"(${found:+this is $found; }https://rustup.rs, or Debian's cargo-web)" >&2
	exit 0
fi
test -d .build/format || echo "building reel-format, once: a minute or two" >&2
mkdir -p "$bin"
sh format/cargo.sh build --release
built=$(ls -t .build/format/*/release/reel-format | head -n 1)
cmp -s "$built" "$bin/reel-format" || install -m 0755 "$built" "$bin/"
