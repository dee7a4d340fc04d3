//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Generators of one model have one identity, whatever settings that change no token, and another with another template.
// reel status --json prints it.
func TestIdentityOfGenerators(t *testing.T) {
	t.Parallel()
	template := filepath.Join(t.TempDir(), "template")
	must(t, os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o600))
	var all []string
	for _, flags := range [][]string{nil, {"--max-seq-len", "64", "--max-batch", "2"}, {"--chat-template", template}} {
		g := serve(t, flags...)
		g.eventually("it has an identity", func() bool { return g.status().Identity != "" })
		id := g.status().Identity
		if c := g.client(); c.Identity() != id {
			t.Errorf("welcome has %q, status %q", c.Identity(), id)
		}
		status := g.reel("status", "--json")
		status.run(0)
		var printed struct{ Identity string }
		if err := json.Unmarshal([]byte(status.stdout.String()), &printed); err != nil || printed.Identity != id {
			t.Errorf("reel status --json: %v, %q", err, printed.Identity)
		}
		all = append(all, id)
	}
	if all[0] != all[1] || all[0] == all[2] {
		t.Errorf("%q", all)
	}
}
