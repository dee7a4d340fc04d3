package protocol

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeRow matches a row of PROTOCOL.md's table of codes.
var codeRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\|.*\\| (yes|no) \\|.*\\|$")

// TestSpecificationListsTheCodes: PROTOCOL.md and the code agree on the codes and on which
// of them close the connection.
func TestSpecificationListsTheCodes(t *testing.T) {
	spec := readText(t, "PROTOCOL.md")
	rows := map[string]bool{}
	for _, m := range codeRow.FindAllStringSubmatch(spec, -1) {
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

// TestSpecificationNamesTheFields: PROTOCOL.md names every field of every message, in a
// table's first column, in backquotes or in braces.
func TestSpecificationNamesTheFields(t *testing.T) {
	spec := readText(t, "PROTOCOL.md")
	for name := range messageFields(t) {
		named := regexp.MustCompile("(?m)(^\\| ([a-z_]+, )*" + name + "[ ,]|`" + name + "`|" +
			"\\{([a-z_]+, )*" + name + "[,}])")
		if !named.MatchString(spec) {
			t.Errorf("PROTOCOL.md does not name %s", name)
		}
	}
}

// messageFields returns the names of the fields of all messages.
func messageFields(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`msgpack:"([a-z_]+)`).FindAllStringSubmatch(readText(t, file), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// TestSpecificationStatesTheBounds: PROTOCOL.md has the same bounds as the code.
func TestSpecificationStatesTheBounds(t *testing.T) {
	spec := readText(t, "PROTOCOL.md")
	for _, row := range []string{
		fmt.Sprintf("| a frame's body | %d MiB |", MaxFrame>>20),
		fmt.Sprintf("| nested maps and lists | %d |", MaxDepth),
		fmt.Sprintf("| elements of a list | %d,%d |", MaxElements/1000, MaxElements%1000),
		fmt.Sprintf("| bytes of frames above %d KiB; smaller frames always pass |"+
			" %d MiB per user, %d MiB in reception |",
			smallFrame>>10, MaxUndecoded>>20, 2*MaxUndecoded>>20),
		fmt.Sprintf("while another frame waits for its room | %.0f s |", ContendedFrameTimeout.Seconds()),
		fmt.Sprintf("a wait of up to %.0f s, then `overloaded`", RoomTimeout.Seconds()),
		fmt.Sprintf("| connections per user | %d, of %d in all, the last %d for users with fewer than 4 |",
			MaxConnections, 2*MaxConnections, MaxConnections/2),
		fmt.Sprintf("| requests per connection that have not ended | %d |", MaxRequests),
		fmt.Sprintf("| queued requests per user, over all their connections | %d, of 1,024 in all |", MaxQueue),
		fmt.Sprintf("| stop strings, bytes of each | %d, %d |", MaxStops, MaxStopBytes),
		fmt.Sprintf("| variables for a chat template, bytes of all | %d, %d KiB |", MaxVariables, MaxVariableBytes>>10),
		fmt.Sprintf("leaves a value %d levels", maxValueDepth),
		fmt.Sprintf("| bytes waiting for a client | %d MiB, %.0f s |", MaxUnsent>>20, StallTimeout.Seconds()),
		fmt.Sprintf("| time from a frame's first byte to its last | %.0f s |", FrameTimeout.Seconds()),
		fmt.Sprintf("| time without a frame, before welcome | %.0f s |", HelloTimeout.Seconds()),
		fmt.Sprintf("| max_tokens | int | 1 to `limits.context` | %d |", DefaultMaxTokens),
		fmt.Sprintf("| temperature | float | 0 to %d | %v |", MaxTemperature, DefaultTemperature),
		fmt.Sprintf("| top_k | int | 0 to `limits.vocab` | %d |", DefaultTopK),
		fmt.Sprintf("| top_p | float | more than 0, to 1 | %d |", DefaultTopP),
		fmt.Sprintf("| min_p | float | 0 to 1 | %d |", DefaultMinP),
		fmt.Sprintf("| repeat_penalty | float | more than 0, to %d | %d |", MaxRepeatPenalty, DefaultRepeatPenalty),
		fmt.Sprintf("| logprobs | int | 0 to %d |", MaxLogprobs),
		fmt.Sprintf("among the last %d of prompt and completion", PenaltyWindow),
	} {
		if !strings.Contains(spec, row) {
			t.Errorf("PROTOCOL.md does not say %s", row)
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
