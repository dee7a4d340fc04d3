package config

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSettingsFile(t *testing.T) {
	parse := func(text string) (map[string]string, error) {
		return parseVariables(bufio.NewScanner(strings.NewReader(text)), "f")
	}
	got, err := parse("# no\n; no\n\n A=1\nB = 2\nC=\"x y\"\nD='#'\nE=\nF=a=b # c\n")
	if err == nil {
		t.Errorf("a space before = passes: %v", got)
	}
	got, err = parse("# no\n; no\n\n A=1\nC=\"x y\"\nD='#'\nE=\nF=a=b\n")
	want := map[string]string{"A": "1", "C": "x y", "D": "#", "E": "", "F": "a=b"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"word", "=x", "A=\"x", "A=\"x\"y\"", `A=x\`, "A=\""} {
		if got, err := parse("X=1\n" + bad); err == nil || !strings.Contains(err.Error(), "f:2:") {
			t.Errorf("%q: got %v, %v", bad, got, err)
		}
	}
}

// The settings file of the package lists every flag in a comment, with its default.
func TestEnvironmentFileNamesEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../../../systemd/generator.env")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#(REEL_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = m[2]
	}
	for _, s := range Settings(&Options{}) {
		if value, ok := named[s.Variable()]; s.Name != "settings" && (!ok || value != s.Text) {
			t.Errorf("%s: the file says %q (%v), the default is %q", s.Variable(), value, ok, s.Text)
		}
		delete(named, s.Variable())
	}
	if len(named) > 0 {
		t.Errorf("no such settings: %v", named)
	}
	values, err := parseVariables(bufio.NewScanner(strings.NewReader(string(text))), "generator.env")
	if err != nil || len(values) > 0 {
		t.Errorf("it sets something: %v, %v", values, err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		name, value string
		known, good bool
	}{
		{"REEL_MAX_BATCH", "8", true, true}, {"REEL_MAX_BATCH", "x", true, false},
		{"REEL_IDLE_EXIT", "10m", true, true}, {"REEL_IDLE_EXIT", "0", true, true},
		{"REEL_IDLE_EXIT", "10", true, false}, {"REEL_IDLE_EXIT", "-1s", true, false},
		{"REEL_DRAFT", "off", true, true}, {"REEL_DRAFT", "lookup", true, true}, {"REEL_DRAFT", "given", true, true},
		{"REEL_DRAFT", "./lookup", true, true}, {"REEL_DRAFT", "/srv/draft", true, true},
		{"REEL_DRAFT", "a\x00b", true, false},
		{"REEL_DRAFT_TOKENS", "0", true, true}, {"REEL_DRAFT_TOKENS", "7", true, true},
		{"REEL_DRAFT_TOKENS", "8", true, false}, {"REEL_DRAFT_TOKENS", "-1", true, false},
		{"REEL_MAX_BATCH", "", true, true}, {"REEL_MAXBATCH", "8", false, true},
	} {
		if known, err := Check(c.name, c.value); known != c.known || (err == nil) != c.good {
			t.Errorf("%s=%s: %t, %v", c.name, c.value, known, err)
		}
	}
}

// The service's file completes the environment.
func TestServiceSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generator.env")
	if err := os.WriteFile(path, []byte("REEL_MODEL=/srv/m\nREEL_DEVICE=cuda\nREEL_MAX_BATCH=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := ServiceSettings(func(name string) string { return map[string]string{"REEL_DEVICE": "host"}[name] }, path)
	for name, want := range map[string]string{"REEL_MODEL": "/srv/m", "REEL_DEVICE": "host", "REEL_MAX_BATCH": "",
		"REEL_GPU": ""} {
		if got := env(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	none := ServiceSettings(func(string) string { return "x" }, path+"none")
	if got := none("REEL_MODEL"); got != "x" {
		t.Errorf("without a file: %q", got)
	}
}

// A name has at most 96 characters, none of which a shell or a terminal interprets. A refused
// name changes nothing.
func TestModelName(t *testing.T) {
	longest := strings.Repeat("n", 96)
	for _, good := range []string{"", "m", "org/Some-Model_1.5", "model:q8+lora@main", longest} {
		got := "before"
		if err := modelName(&got)(good); err != nil || got != good {
			t.Errorf("%q: %q, %v", good, got, err)
		}
	}
	for _, bad := range []string{" ", "two words", "/m", "-m", "a\x1b[2J", "a\n", "é", longest + "n"} {
		got := "before"
		if err := modelName(&got)(bad); err == nil || got != "before" {
			t.Errorf("%q is accepted: %q", bad, got)
		}
	}
}

// --allow-sleep takes uids and names of users, and refuses others.
func TestAllowSleep(t *testing.T) {
	for text, want := range map[string][]uint32{
		"": nil, "7": {7}, "root, 4294967294": {0, 4294967294}, "no such user": nil, "-1": nil, "4294967296": nil,
	} {
		var o Options
		err := Pick(Settings(&o), "allow-sleep")[0].Set(text)
		if refused := text != "" && want == nil; refused != errors.Is(err, ErrConfig) || !slices.Equal(o.AllowSleep, want) {
			t.Errorf("%q: %v, %v", text, o.AllowSleep, err)
		}
	}
}
