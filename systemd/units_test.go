package systemd_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// unit returns the lines of a unit without comments.
func unit(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// without returns the lines of a that b lacks.
func without(a, b []string) string {
	var list []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			list = append(list, line)
		}
	}
	return strings.Join(list, "\n")
}

// TestInstancesAreTheService: the units of instances are those of the only generator, restrictions and all, but for what
// differs between instances and for what starts them.
func TestInstancesAreTheService(t *testing.T) {
	for kind, want := range map[string]struct{ only, instance string }{
		"service": {
			`Description=Reel, a local inference daemon
After=reel-generator.socket nvidia-persistenced.service modprobe@nvidia_uvm.service
EnvironmentFile=-/etc/reel/generator.env
Environment=REEL_SETTINGS=/etc/reel/generator.env
ExecStart=/usr/bin/reel-generator --device cuda --socket /run/reel/generator.sock --log-format json
CacheDirectory=reel
Restart=on-failure
RestartSec=1
RestartPreventExitStatus=78
[Install]
WantedBy=multi-user.target
Also=reel-generator.socket`,
			`Description=Reel, a local inference daemon: %i
Requires=reel-generator@%i.socket
After=reel-generator@%i.socket nvidia-persistenced.service modprobe@nvidia_uvm.service
EnvironmentFile=/etc/reel/generator@%i.env
Environment=REEL_SETTINGS=/etc/reel/generator@%i.env
Environment=REEL_NAME=%i REEL_IDLE_EXIT=10m REEL_ALLOW_SLEEP=reel-gateway
ExecStart=/usr/bin/reel-generator --device cuda --socket /run/reel/%i.sock --log-format json
CacheDirectory=reel/%i
Restart=no`},
		"socket": {
			`Description=Socket of Reel, a local inference daemon
ListenStream=/run/reel/generator.sock`,
			`Description=Socket of Reel, a local inference daemon: %i
ListenStream=/run/reel/%i.sock
User=reel
Group=reel
UMask=0027
ExecStartPost=/bin/sh -c 'test -e /run/reel/%i.state || echo "{\\"state\\":\\"sleeping\\"}" >/run/reel/%i.state'`},
	} {
		only, instance := unit(t, "reel-generator."+kind), unit(t, "reel-generator@."+kind)
		if got := without(only, instance); got != want.only {
			t.Errorf("only reel-generator.%s has\n%s", kind, got)
		}
		if got := without(instance, only); got != want.instance {
			t.Errorf("only reel-generator@.%s has\n%s", kind, got)
		}
	}
}
