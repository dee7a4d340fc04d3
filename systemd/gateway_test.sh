# Functions for package_test.sh that test the gateway's unit in the Debian system at $root. They use
# those of boot.sh.

# test_gateway_installed tests what the installation leaves: the gateway is there and not enabled.
test_gateway_installed() {
	echo "the gateway is installed, and not enabled"
	test ! -L "$root/etc/systemd/system/multi-user.target.wants/reel-gateway.service" || fail "it is enabled"
	within id -nG reel-gateway | grep -qw reel || fail "its user may not connect to the generator"
	within sh -c 'test -s /etc/reel/gateway.env && test -s /usr/share/reel/plain.jinja' || fail "files are missing"
	within sh -c 'test -s /usr/share/man/man1/reel-gateway.1.gz && bash -n /usr/share/bash-completion/completions/reel-gateway' ||
		fail "man page or completions of reel-gateway are missing"
}

# post sends a request for a completion as the user $1 to the address $2, with the header $3. It prints the answer.
post() { within su "$1" -c "cd / && sg ${4:-reel} -c 'perl /srv/post.pl $2 \"${3:-Accept: */*}\"'"; }

# gateway_serves reports whether the user $1 gets a completion on the unit's socket.
gateway_serves() { post "$1" /run/reel-gateway/http.sock | grep -q '"finish_reason":"length"'; }

# test_gateway starts the unit: a member of the group is served on its socket, nobody else; on TCP a key is needed.
test_gateway() {
	cat >"$root/srv/post.pl" <<'PERL'
use IO::Socket::INET;
use IO::Socket::UNIX;
my ($at, $header) = @ARGV;
my $s = $at =~ m{^/} ? IO::Socket::UNIX->new($at) : IO::Socket::INET->new($at);
$s or die "$at: $!\n";
my $body = '{"prompt": "ROMEO:", "max_tokens": 8}';
print $s join "\r\n", "POST /v1/completions HTTP/1.0", "Host: localhost", $header, "Content-Length: " . length $body, "", $body;
print while <$s>;
PERL
	echo "the gateway serves the group on its socket"
	within systemctl start reel-gateway
	test "$(within stat -c '%U:%G %a' /run/reel-gateway /run/reel-gateway/http.sock | tr '\n' ' ')" = "reel-gateway:reel 750 reel-gateway:reel 660 " ||
		fail "modes: $(within stat -c '%U:%G %a' /run/reel-gateway /run/reel-gateway/http.sock)"
	gateway_serves ada || fail "no completion: $(post ada /run/reel-gateway/http.sock)"
	within useradd -m mallory
	! post mallory /run/reel-gateway/http.sock "" mallory >/dev/null 2>&1 || fail "a user outside the group may connect"

	echo "on TCP it wants a key"
	key=0123456789abcdef0123456789abcdef
	within sh -c "umask 027 && echo $key >/etc/reel/gateway.keys && chgrp reel-gateway /etc/reel/gateway.keys"
	within sh -c 'echo "REEL_GATEWAY_FLAGS=--listen 0.0.0.0:8080 --api-key-file /etc/reel/gateway.keys" >>/etc/reel/gateway.env && systemctl restart reel-gateway'
	post mallory 127.0.0.1:8080 "" mallory | grep -q '^HTTP/1.. 401 ' || fail "without a key: $(post mallory 127.0.0.1:8080 "" mallory)"
	post mallory 127.0.0.1:8080 "Authorization: Bearer $key" mallory | grep -q '"finish_reason":"length"' || fail "a key does not open it"
	within sh -c 'sed -i s/--api-key-file.*// /etc/reel/gateway.env && systemctl restart reel-gateway' >/dev/null 2>&1 || true
	eventually within sh -c 'test "$(systemctl show -P ExecMainStatus reel-gateway)" = 78'
	test "$(within systemctl show -P NRestarts reel-gateway)" = 0 || fail "it was restarted"
	within sh -c 'sed -i /^REEL_GATEWAY_FLAGS/d /etc/reel/gateway.env && systemctl reset-failed reel-gateway && systemctl start reel-gateway'
}

# active prints the states of the instances capulet and montague.
active() { within systemctl show -P ActiveState reel-generator@capulet reel-generator@montague | tr -s '\n' ' '; }

# say asks the model $1 for a completion on the gateway's socket.
say() {
	within su ada -c "cd / && sg reel -c 'perl /srv/say.pl $1'" | grep -q "\"model\":\"$1\".*\"finish_reason\":\"length\"" || fail "no completion of $1"
}

# test_instances starts models by their names: nothing but a request starts one, and one that has slept starts again.
test_instances() {
	echo "two instances: requests start them by name, and nothing else"
	cat >"$root/srv/say.pl" <<'PERL'
use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new("/run/reel-gateway/http.sock") or die "$!\n";
my $body = qq({"model": "$ARGV[0]", "prompt": "ROMEO:", "max_tokens": 8});
print $s join "\r\n", "POST /v1/completions HTTP/1.0", "Host: localhost", "Content-Length: " . length $body, "", $body;
print while <$s>;
PERL
	instances=$root/etc/systemd/system/reel-generator@.service.d/host.conf
	mkdir -p "${instances%/*}"
	{ echo "[Service]"; echo ExecStart=; sed -n 's/^\(ExecStart=.*\)--device cuda/\1--device host/p' "$here/reel-generator@.service"; } >"$instances"
	for name in capulet montague; do : >"$root/etc/reel/generator@$name.env"; done
	within sh -c 'echo "REEL_GATEWAY_FLAGS=--health-listen 127.0.0.1:8090 --generator capulet=/run/reel/capulet.sock --generator montague=/run/reel/montague.sock" >>/etc/reel/gateway.env'
	within sh -c 'systemctl daemon-reload && systemctl enable --now reel-generator@capulet.socket reel-generator@montague.socket && systemctl restart reel-gateway' >/dev/null 2>&1
	test "$(within stat -c '%U:%G %a' /run/reel/capulet.sock /run/reel/capulet.state | tr '\n' ' ')" = "reel:reel 660 reel:reel 640 " ||
		fail "modes: $(within stat -c '%U:%G %a' /run/reel/capulet.sock /run/reel/capulet.state)"
	for path in ready metrics health; do
		within bash -c "exec 3<>/dev/tcp/127.0.0.1/8090; printf 'GET /$path HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; grep -q '200 OK' <&3" || fail "/$path"
	done
	within reel --socket /run/reel/capulet.sock status | grep -q '^state *sleeping' || fail "reel status does not say that it sleeps"
	test "$(active)" = "inactive inactive " || fail "a question has started one: $(active)"
	say capulet
	test "$(active)" = "active inactive " || fail "the other model has started too: $(active)"
	say montague
	for _ in 1 2 3; do
		within su -s /bin/sh reel-gateway -c 'reel --socket /run/reel/capulet.sock sleep' >/dev/null || fail "the gateway's user may not have it sleep"
		eventually within sh -c 'test "$(systemctl show -P ActiveState reel-generator@capulet)" = inactive'
		! within su ada -c "cd / && sg reel -c 'reel --socket /run/reel/montague.sock sleep'" >/dev/null 2>&1 || fail "any user may have it sleep"
		say capulet
	done
	within sh -c 'systemctl disable --now reel-generator@capulet.socket reel-generator@montague.socket && systemctl stop reel-generator@capulet reel-generator@montague' >/dev/null 2>&1
	within sh -c 'sed -i /^REEL_GATEWAY_FLAGS/d /etc/reel/gateway.env && systemctl restart reel-gateway'
}
