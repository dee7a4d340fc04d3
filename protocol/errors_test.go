package protocol

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The specification and the code agree about the codes and about which close.
func TestSpecificationListsTheCodes(t *testing.T) {
	spec := readText(t, "PROTOCOL.md")
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\|.*\\| (yes|no) \\|.*\\|$").FindAllStringSubmatch(spec, -1) {
		rows[m[1]] = m[2] == "yes"
	}
	declared := regexp.MustCompile(`(?m)^\tCode\w+ += "([a-z_]+)"`).FindAllStringSubmatch(readText(t, "errors.go"), -1)
	if len(declared) != len(rows) || len(rows) == 0 {
		t.Errorf("%d codes declared, %d specified", len(declared), len(rows))
	}
	for _, m := range declared {
		closes, ok := rows[m[1]]
		if e := (&Error{Code: m[1]}); !ok || closes != e.Closes() {
			t.Errorf("%s: specified %v, closes %v; in code closes %v", m[1], ok, closes, e.Closes())
		}
	}
}

// Every field of every message is in the specification.
func TestSpecificationNamesTheFields(t *testing.T) {
	spec := readText(t, "PROTOCOL.md")
	for _, m := range regexp.MustCompile(`msgpack:"([a-z_]+)`).FindAllStringSubmatch(readText(t, "messages.go")+readText(t, "limits.go"), -1) {
		if !strings.Contains(spec, m[1]) {
			t.Errorf("PROTOCOL.md does not name %s", m[1])
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestErrorText(t *testing.T) {
	e := Errorf(CodeBusy, "try again", "%d wait", 512)
	if e.Error() != "512 wait (try again)" || e.Type != TypeError {
		t.Errorf("%q of type %q", e.Error(), e.Type)
	}
	if bare := (&Error{Message: "no"}).Error(); bare != "no" {
		t.Errorf("%q", bare)
	}
	if of := e.For(7); *of.ID != 7 || e.ID != nil {
		t.Errorf("For changed the error it copied: %v", e.ID)
	}
}
