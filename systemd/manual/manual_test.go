package manual

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestWrite: pages have the sections in their order, FILES on the first page only, and
// completions lie beside them.
func TestWrite(t *testing.T) {
	nothing := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "reel", Short: "s", Long: "l", Example: "  reel x", Run: nothing}
	root.AddCommand(&cobra.Command{Use: "status", Short: "s", Run: nothing})
	dir := t.TempDir()
	sections := []Section{
		Notes(Entry{"--x", "more"}), Exit(Entry{"64", "a mistake"}), Environment(Entry{"REEL_X", "it"}), Files(Entry{".x-y", `a\b`}),
	}
	err := Write(root, dir, sections...)
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, dir, "man1/reel.1")
	at := 0
	for _, part := range []string{".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES\n", ".SH NOTES\n",
		".SH EXIT STATUS\n.TP\n\\fB64\\fP\na mistake\n", ".SH ENVIRONMENT\n",
		".SH FILES\n.TP\n\\fB\\&.x\\-y\\fP\na\\eb\n", ".SH SEE ALSO\n", "reel-status(1)", "reel\\-bench(1)"} {
		next := strings.Index(page[at:], part)
		if next < 0 {
			t.Fatalf("no %q after byte %d of\n%s", part, at, page)
		}
		at += next
	}
	sub := read(t, dir, "man1/reel-status.1")
	if !strings.Contains(sub, ".SH EXIT STATUS") || strings.Contains(sub, ".SH FILES") ||
		strings.Contains(sub, ".SH NOTES") {
		t.Errorf("got\n%s", sub)
	}
	for _, name := range []string{"reel.bash", "_reel", "reel.fish"} {
		read(t, dir, name)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
