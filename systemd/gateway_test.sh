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
