#!/bin/sh
# Packs the programs in BIN into a tarball and a Debian package, with units, man pages,
# completions and the settings file.
# usage: sh systemd/package.sh BIN OUT VERSION NFPM
set -eu
bin=$1 out=$2 version=$3 nfpm=$4
cd "$(dirname "$0")/.."
arch=$(go env GOARCH)
# A Debian version begins with a digit, and a hyphen separates the revision.
case $version in
v[0-9]*) debian=$(printf %s "${version#v}" | tr - +) ;;
[0-9]*.[0-9]*) debian=$(printf %s "$version" | tr - +) ;;
*) debian=0.0.0+git.$(printf %s "$version" | tr - +) ;;
esac
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH
mkdir -p "$out"
stage=$out/stage
rm -rf "$stage"

# put MODE DIR FILE... installs files below the stage.
put() {
	mode=$1 dir=$stage$2
	shift 2
	install -d -m 0755 "$dir"
	install -m "$mode" "$@" "$dir/"
}

put 0755 /usr/bin "$bin/reel-generator" "$bin/reel" "$bin/reel-bench"
test ! -e "$bin/reel-generator-cuda" || put 0755 /usr/bin "$bin/reel-generator-cuda"
put 0644 /usr/lib/systemd/system systemd/reel-generator.service systemd/reel-generator.socket
put 0644 /etc/reel systemd/generator.env
install -D -m 0644 systemd/reel.sysusers.conf "$stage/usr/lib/sysusers.d/reel.conf"
install -D -m 0644 systemd/reel.tmpfiles.conf "$stage/usr/lib/tmpfiles.d/reel.conf"
put 0644 /usr/share/doc/reel README.md ARCHITECTURE.md protocol/PROTOCOL.md systemd/grafana-dashboard.json
install -m 0644 LICENSE "$stage/usr/share/doc/reel/copyright"

manual=$out/manual
rm -rf "$manual"
go run -tags manual ./client/cmd/reel "$manual"
go run -tags manual ./generator "$manual"
put 0644 /usr/share/man/man1 "$manual"/man1/*.1
gzip -9n "$stage"/usr/share/man/man1/*.1
for name in reel reel-generator; do
	install -D -m 0644 "$manual/$name.bash" "$stage/usr/share/bash-completion/completions/$name"
	install -D -m 0644 "$manual/_$name" "$stage/usr/share/zsh/vendor-completions/_$name"
	install -D -m 0644 "$manual/$name.fish" "$stage/usr/share/fish/vendor_completions.d/$name.fish"
done

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
	--transform "s,^\./,reel-$debian/," -C "$stage" -czf "$out/reel-$debian-linux-$arch.tar.gz" .
REEL_VERSION=$debian REEL_ARCH=$arch REEL_STAGE=$stage "$nfpm" package --config systemd/debian/nfpm.yaml --packager deb \
	--target "$out/reel_${debian}_$arch.deb" >&2
rm -rf "$stage" "$manual"
ls "$out/reel-$debian-linux-$arch.tar.gz" "$out/reel_${debian}_$arch.deb"
