#!/bin/sh
# Gets the JSON Schema test suite from the Python registry, once, and prints its folder.
# usage: sh format/suite.sh
set -eu
cd "$(dirname "$0")/.."
folder=$PWD/.build/json-schema-suite-$(cksum <format/suite.txt | cut -d ' ' -f 1)
if ! test -d "$folder"; then
	echo "getting the JSON Schema test suite, once" >&2
	mkdir -p .build
	work=$(mktemp -d "$folder.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	python3 -m venv "$work/venv"
	"$work/venv/bin/python3" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
		--require-hashes --requirement format/suite.txt --dest "$work" >&2
	tar -xzf "$work"/jsonschema-*.tar.gz -C "$work"
	mv -T "$work"/jsonschema-*/json "$folder"
fi
echo "$folder"
