#!/bin/sh
# Prints this tree's version: the one in the file VERSION. A commit without the release's tag
# adds build metadata, as in 0.1.0+485.g755c6a4: the number of commits, so that versions sort,
# then git describe's name of the commit.
set -eu
cd "$(dirname "$0")/.."
version=$(cat VERSION)
if ! git ls-files --error-unmatch VERSION >/dev/null 2>&1 ||
	test "$(git describe --tags --exact-match --dirty 2>/dev/null)" = "v$version"; then
	echo "$version"
	exit
fi
echo "$version+$(git rev-list --count HEAD).g$(git describe --always --dirty=.dirty --exclude '*')"
