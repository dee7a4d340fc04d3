package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A variable that is nearly a setting is remarked on, once, and no other.
func TestMisspelt(t *testing.T) {
	for name, want := range map[string]string{
		"REEL_MODL": "REEL_MODEL", "REEL_MDOEL": "REEL_MODEL", "REEL_MAXBATCH": "REEL_MAX_BATCH",
		"REEL_MAX_CONTEXT": "", "REEL_MAX_SQE_LEM": "REEL_MAX_SEQ_LEN", "REEL_DEVICES": "REEL_DEVICE",
		"REEL_CHAT_TEMPLATES": "REEL_CHAT_TEMPLATE", "REEL_SETING": "REEL_SETTINGS",
		"REEL_MODEL": "", "REEL_GPUS": "", "REEL_MODELS": "", "REEL_KEY": "", "REEL_GATEWAY_FLAGS": "", "REEL_": "",
		"MODL": "", "REEL": "", "REEL_" + strings.Repeat("MODEL", 10_000): "",
	} {
		got := Misspelt([]string{"PATH=/bin", name + "=/srv/REEL_MODL", name})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], `"`+name+`"`) ||
			!strings.HasSuffix(got[0], "did you mean "+want+"?")) {
			t.Errorf("%.80s: %q, want %s", name, got, want)
		}
	}
}

// No variable that programs, tests and units of the repository use is taken for a setting. Tests in these folders misspell
// some.
func TestOtherVariablesAreNotMisspelt(t *testing.T) {
	misspelling := regexp.MustCompile(`^\.\./\.\./\.\./generator/(internal/(config|doctor)/)?[a-z_]*_test\.go$`)
	texts := []string{".go", ".sh", ".py", ".cjs", ".service", ".socket", ".env", ".yaml", ".md"}
	var names []string
	err := filepath.WalkDir("../../..", func(p string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case !slices.Contains(texts, filepath.Ext(p)) && d.Name() != "Makefile", misspelling.MatchString(p):
			return nil
		}
		text, err := os.ReadFile(p)
		names = append(names, regexp.MustCompile(`\bREEL_[A-Z0-9_]+`).FindAllString(string(text), -1)...)
		return err
	})
	if err != nil || !slices.Contains(names, "REEL_GATEWAY_FLAGS") || !slices.Contains(names, "REEL_MODELS") ||
		!slices.Contains(names, "REEL_E2E_DEVICE") {
		t.Fatalf("%d variables are found, %v", len(names), err)
	}
	if got := Misspelt(names); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
