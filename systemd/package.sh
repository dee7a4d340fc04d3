#!/bin/sh
# Packs the programs in BIN into a tarball and two Debian packages, reel and reel-bench, with
# units, man pages, completions and the settings file.
# usage: sh systemd/package.sh BIN OUT VERSION NFPM; $HOMEPAGE and $MAINTAINER are their fields.
set -eu
bin=$1 out=$2 version=$3 nfpm=$4
cd "$(dirname "$0")/.."
case $version in
[0-9]*.[0-9]*-* | [!0-9]*) echo "$version is no version such as 0.1.0 or 0.1.0+485.g755c6a4" >&2; exit 1 ;;
esac
arch=$(go env GOARCH)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
HOMEPAGE=${HOMEPAGE:-https://reel.example/} MAINTAINER=${MAINTAINER:-The Reel authors <reel@reel.example>}
export SOURCE_DATE_EPOCH HOMEPAGE MAINTAINER
mkdir -p "$out"
all=$out/stage
rm -rf "$all"

# put MODE DIR FILE... installs files below the stage.
put() {
	mode=$1 dir=$stage$2
	shift 2
	install -d -m 0755 "$dir"
	install -m "$mode" "$@" "$dir/"
}

# complete PROGRAM installs the man pages and completions of a program below the stage.
complete() {
	for page in "$manual/man1/$1.1" "$manual/man1/$1"-*.1; do
		case $1:${page##*/} in
		reel:reel-generator* | reel:reel-gateway* | reel:reel-bench*) ;;
		*) test ! -e "$page" || put 0644 /usr/share/man/man1 "$page" ;; # not every program has subcommands
		esac
	done
	install -D -m 0644 "$manual/$1.bash" "$stage/usr/share/bash-completion/completions/$1"
	install -D -m 0644 "$manual/_$1" "$stage/usr/share/zsh/vendor-completions/_$1"
	install -D -m 0644 "$manual/$1.fish" "$stage/usr/share/fish/vendor_completions.d/$1.fish"
}

# package NAME CONFIG makes a Debian package of the stage.
package() {
	gzip -9n "$stage"/usr/share/man/man1/*.1
	REEL_VERSION=$version REEL_ARCH=$arch REEL_STAGE=$stage "$nfpm" package --config "systemd/debian/$2" --packager deb \
		--target "$out/$1_${version}_$arch.deb" >&2
}

manual=$out/manual
rm -rf "$manual"
sh systemd/manual/write.sh "$(realpath -m "$manual")"

stage=$all/reel
put 0755 /usr/bin "$bin/reel-generator" "$bin/reel" "$bin/reel-gateway"
test ! -e "$bin/reel-format" || put 0755 /usr/bin "$bin/reel-format"
test ! -e "$bin/reel-generator-cuda" || put 0755 /usr/bin "$bin/reel-generator-cuda"
put 0644 /usr/lib/systemd/system systemd/reel-generator.service systemd/reel-generator.socket \
	systemd/reel-generator@.service systemd/reel-generator@.socket systemd/reel-gateway.service
put 0644 /etc/reel systemd/generator.env systemd/gateway.env
put 0644 /usr/share/reel generator/tiny/plain.jinja
install -D -m 0644 systemd/reel.sysusers.conf "$stage/usr/lib/sysusers.d/reel.conf"
install -D -m 0644 systemd/reel.tmpfiles.conf "$stage/usr/lib/tmpfiles.d/reel.conf"
put 0644 /usr/share/doc/reel README.md ARCHITECTURE.md protocol/PROTOCOL.md systemd/grafana-dashboard.json
install -m 0644 LICENSE "$stage/usr/share/doc/reel/copyright"
complete reel
complete reel-generator
complete reel-gateway
package reel nfpm.yaml

stage=$all/reel-bench
put 0755 /usr/bin "$bin/reel-bench"
install -D -m 0644 LICENSE "$stage/usr/share/doc/reel-bench/copyright"
complete reel-bench
package reel-bench reel-bench.yaml

cp -a "$all/reel-bench/." "$all/reel/"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
	--transform "s,^\./,reel-$version/," -C "$all/reel" -czf "$out/reel-$version-linux-$arch.tar.gz" .
rm -rf "$all" "$manual"
ls "$out/reel-$version-linux-$arch.tar.gz" "$out/reel_${version}_$arch.deb" "$out/reel-bench_${version}_$arch.deb"
