package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tree is a copy of what version.sh reads, outside of any repository.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T) tree {
	for _, tool := range []string{"git", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	tr := tree{t, t.TempDir()}
	script, err := os.ReadFile("version.sh")
	if err != nil {
		t.Fatal(err)
	}
	tr.write("systemd/version.sh", string(script))
	tr.write("VERSION", "1.2.3\n")
	return tr
}

func (tr tree) write(name, text string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// run runs a command in the tree and returns its output.
func (tr tree) run(name string, args ...string) string {
	tr.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = tr.dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tr.dir), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		tr.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (tr tree) commit(subject string) {
	tr.t.Helper()
	tr.run("git", "add", "-A")
	tr.run("git", "commit", "-q", "--allow-empty", "-m", subject)
}

// TestVersion: the version is that of the file; commits that are no release add their number,
// their name, and "dirty".
func TestVersion(t *testing.T) {
	tr := newTree(t)
	check := func(state, pattern string) {
		t.Helper()
		if got := tr.run("sh", "systemd/version.sh"); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
			t.Errorf("%s: %s, want %s", state, got, pattern)
		}
	}
	check("without a repository", `1\.2\.3`)
	tr.run("git", "init", "-q")
	tr.commit("one")
	check("a commit", `1\.2\.3\+1\.g[0-9a-f]{7,}`)
	tr.commit("two")
	check("another commit", `1\.2\.3\+2\.g[0-9a-f]{7,}`)
	tr.write("VERSION", "1.2.4\n")
	check("a changed file", `1\.2\.4\+2\.g[0-9a-f]{7,}\.dirty`)
	tr.commit("release")
	tr.run("git", "tag", "v1.2.4")
	check("the release's tag", `1\.2\.4`)
	tr.write("VERSION", "1.2.5\n")
	check("a changed file at a tag", `1\.2\.5\+3\.g[0-9a-f]{7,}\.dirty`)
}
