//go:build linux

package main

import (
	"bufio"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestSettingsFile(t *testing.T) {
	got, err := parseVariables(bufio.NewScanner(strings.NewReader("# no\n; no\n\n A=1\nB = 2\nC=\"x y\"\nD='#'\nE=\nF=a=b # c\n")), "f")
	if err == nil {
		t.Errorf("a space before = passes: %v", got)
	}
	got, err = parseVariables(bufio.NewScanner(strings.NewReader("# no\n; no\n\n A=1\nC=\"x y\"\nD='#'\nE=\nF=a=b\n")), "f")
	want := map[string]string{"A": "1", "C": "x y", "D": "#", "E": "", "F": "a=b"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"word", "=x", "A=\"x", "A=\"x\"y\"", `A=x\`, "A=\""} {
		if got, err := parseVariables(bufio.NewScanner(strings.NewReader("X=1\n"+bad)), "f"); err == nil || !strings.Contains(err.Error(), "f:2:") {
			t.Errorf("%q: got %v, %v", bad, got, err)
		}
	}
}

// The package's file of settings names every flag, as a comment, with its default.
func TestEnvironmentFileNamesEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../systemd/generator.env")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#(REEL_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = m[2]
	}
	for _, s := range (&Options{}).settings() {
		if value, ok := named[s.variable()]; s.name != "settings" && (!ok || value != s.text) {
			t.Errorf("%s: the file says %q (%v), the default is %q", s.variable(), value, ok, s.text)
		}
		delete(named, s.variable())
	}
	if len(named) > 0 {
		t.Errorf("no such settings: %v", named)
	}
	if values, err := parseVariables(bufio.NewScanner(strings.NewReader(string(text))), "generator.env"); err != nil || len(values) > 0 {
		t.Errorf("it sets something: %v, %v", values, err)
	}
}
