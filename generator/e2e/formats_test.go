//go:build linux && formats

package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// person is a schema that asks for one of each type.
const person = `{"type": "object", "properties": {
	"name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
	"height": {"type": "number", "minimum": 0.5, "maximum": 2.5}, "house": {"enum": ["Montague", "Capulet", null]},
	"alive": {"type": "boolean"}, "loves": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2}},
	"required": ["name", "age", "house", "alive", "loves"], "additionalProperties": false}`

// serveFormats starts a generator beside reel-format.
func serveFormats(t *testing.T, flags ...string) *generator {
	t.Helper()
	placeFormat(t)
	return serve(t, flags...)
}

// placeFormat puts reel-format, which REEL_FORMAT names, beside the generator.
func placeFormat(t *testing.T) {
	t.Helper()
	path := filepath.Join(binaries, "reel-format")
	binary, err := os.ReadFile(os.Getenv("REEL_FORMAT"))
	if _, missing := os.Stat(path); err == nil && missing != nil {
		err = os.WriteFile(path, binary, 0o755)
	}
	if err != nil {
		t.Fatalf("REEL_FORMAT is the path of reel-format, which make builds: %v", err)
	}
}

func text(r result) string {
	var b strings.Builder
	for _, t := range r.Tokens {
		b.WriteString(t.Text)
	}
	return b.String()
}

// formatted returns a request with a format and a seed.
func formatted(f protocol.Format, seed uint64) client.Request {
	return client.Request{Prompt: "JULIET:\n", MaxTokens: new(400), Seed: &seed, Format: &f}
}

// Every answer to a schema validates, ends with stop, and is the same alone and beside others.
func TestAnswersHaveTheFormat(t *testing.T) {
	g := serveFormats(t)
	c := g.client()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(person))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	_ = compiler.AddResource("file:///person.json", v)
	schema := compiler.MustCompile("file:///person.json")
	const n = 12
	alone := make([]string, n)
	for i := range alone {
		r := ask(c, formatted(protocol.Format{JSONSchema: person}, uint64(i)))
		alone[i] = text(r)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(alone[i]))
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil || r.Reason != "stop" {
			t.Errorf("seed %d: %q, %s %s: %v", i, alone[i], r.Reason, r.Err, err)
		}
	}
	beside := make(chan [2]string)
	for i := range alone {
		go func() {
			beside <- [2]string{alone[i], text(ask(c, formatted(protocol.Format{JSONSchema: person}, uint64(i))))}
		}()
	}
	for range alone {
		if texts := <-beside; texts[0] != texts[1] {
			t.Errorf("alone %q, beside others %q", texts[0], texts[1])
		}
	}
}

// Each kind of format gives a text of it; what cannot be followed has a typed error.
func TestFormatsOfEachKind(t *testing.T) {
	c := serveFormats(t).client()
	for _, want := range []struct {
		format       protocol.Format
		begin, error string
	}{
		{format: protocol.Format{JSON: true}, begin: "{"},
		{format: protocol.Format{Regex: "Nay, [a-z]{3,20}\\."}, begin: "Nay, "},
		{format: protocol.Format{Choice: []string{"Romeo", "Roses"}}, begin: "Ro"},
		{format: protocol.Format{JSONSchema: `{"not": {}}`}, error: protocol.CodeBadFormat},
		{format: protocol.Format{Regex: "("}, error: protocol.CodeBadFormat},
	} {
		r := ask(c, formatted(want.format, 1))
		if got := text(r); !strings.HasPrefix(got, want.begin) || (r.Err != "") != (want.error != "") {
			t.Errorf("%+v: %q, %s", want.format, got, r.Err)
		}
	}
}

// killed matches what requests say whose format's process, or the program that forks for it, was killed.
var killed = regexp.MustCompile("has ended|ended while it was compiled|did not answer|does not listen")

// With processes of reel-format killed at random, requests end whole or with format_failed, and the next is served.
func TestFormatsWhileReelFormatIsKilled(t *testing.T) {
	g := serveFormats(t)
	c := g.client()
	for round := range uint64(6) {
		ended := make(chan result)
		for i := range uint64(4) {
			go func() { ended <- ask(c, formatted(protocol.Format{Regex: "[a-z ]{200}"}, 10*round+i)) }()
		}
		time.Sleep(time.Duration(40+30*round) * time.Millisecond)
		killFormats(t)
		for range 4 {
			if r := <-ended; r.Err == "" && len(text(r)) != 200 || r.Err != "" && !killed.MatchString(r.Err) {
				t.Errorf("%q, %s %s", text(r), r.Reason, r.Err)
			}
		}
	}
	for range 100 { // it may be in a pause before its next start
		r := ask(c, formatted(protocol.Format{Regex: "[a-z]{5}"}, 1))
		if r.Err == "" && len(text(r)) == 5 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("formats are not followed any more")
}

// killFormats kills the processes of the tests' reel-format, each with a chance of a half.
func killFormats(t *testing.T) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if path, _ := os.Readlink(link); path != filepath.Join(binaries, "reel-format") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && rand.IntN(2) == 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
