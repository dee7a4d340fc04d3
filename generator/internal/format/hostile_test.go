//go:build formats

package format

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// hostile are formats that would take much time, memory or depth.
func hostile() map[string]protocol.Format {
	schemas := map[string]string{
		"all of any of":   anyOfs(8, 10),
		"deep":            strings.Repeat(`{"type": "array", "items": `, 120) + "{}" + strings.Repeat("}", 120),
		"deeper":          strings.Repeat(`{"items": `, 1000) + "{}" + strings.Repeat("}", 1000),
		"many items":      `{"type": "array", "items": {"type": "string"}, "minItems": 1000000000}`,
		"long string":     `{"type": "string", "minLength": 100000000}`,
		"bounded string":  `{"type": "string", "minLength": 1000, "maxLength": 1000000}`,
		"many lengths":    `{"type": "array", "items": {"type": "string", "maxLength": 30000}, "maxItems": 30000}`,
		"huge enum":       `{"enum": ["` + strings.Repeat("a", 100000) + `"` + strings.Repeat(`, "b"`, 30000) + "]}",
		"refs":            refs(40),
		"circle":          `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`,
		"large multiple":  `{"type": "integer", "multipleOf": 999999937, "minimum": 1e9}`,
		"pattern":         `{"type": "string", "pattern": "^(([a-z]+)+[0-9]*){1,200}$", "minLength": 500}`,
		"many properties": properties(5000),
		"patterns":        patterns(300),
	}
	formats := map[string]protocol.Format{}
	for name, s := range schemas {
		formats[name] = protocol.Format{JSONSchema: s}
	}
	for name, r := range map[string]string{
		"nested repetition": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}", "catastrophic": "(x+x+)+y", "stars": "((a*)*)*b",
		"long lookup": "(.*a.{2000})", "counted": "[ab]*a[ab]{60}", "unicode": `\pL{1,3000}`,
		"alternatives": strings.Repeat("a?", 3000) + strings.Repeat("a", 3000),
	} {
		formats["regex "+name] = protocol.Format{Regex: r}
	}
	return formats
}

// anyOfs returns an allOf of lists of options, which multiply.
func anyOfs(lists, options int) string {
	var all []string
	for i := range lists {
		var any []string
		for j := range options {
			any = append(any, fmt.Sprintf(`{"properties": {"p%d": {"const": %d}}}`, i, j))
		}
		all = append(all, `{"anyOf": [`+strings.Join(any, ", ")+`]}`)
	}
	return `{"type": "object", "allOf": [` + strings.Join(all, ", ") + `]}`
}

// refs returns definitions of which each means the next one twice.
func refs(n int) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	return fmt.Sprintf(`{"$ref": "#/$defs/d0", "$defs": {%s, "d%d": {"type": "string"}}}`, strings.Join(defs, ", "), n)
}

func properties(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"p%d": {"type": "string", "pattern": "^a+%d$"}`, i, i))
	}
	return `{"type": "object", "properties": {` + strings.Join(all, ", ") + `}}`
}

func patterns(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"^p%dx.*y{1,50}": {}`, i))
	}
	return `{"type": "object", "patternProperties": {` + strings.Join(all, ", ") + `}}`
}

// A hostile format is refused or followed in a bounded time, with a typed error if any; another user's format that
// runs beside it gets its masks all the while.
func TestHostileFormats(t *testing.T) {
	s := newService(t, vocabulary(32000))
	for name, f := range hostile() {
		t.Run(name, func(t *testing.T) {
			beside := s.compiled(t, protocol.Format{Regex: "a*"})
			defer beside.Close()
			done := make(chan string)
			go func() { done <- s.provoke(t, f) }()
			slowest, begun := time.Duration(0), time.Now()
			for {
				select {
				case outcome := <-done:
					t.Logf("%v: %s; the slowest mask beside it took %v", time.Since(begun).Round(time.Millisecond), outcome, slowest)
					return
				default:
				}
				asked := time.Now()
				if m := next(beside, 3+'a'); m.Err != nil {
					t.Fatal(m.Err)
				}
				slowest = max(slowest, time.Since(asked))
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// provoke compiles a format and draws from it, and says what became of it.
func (s *Service) provoke(t *testing.T, f protocol.Format) string {
	begun := time.Now()
	q, err := s.Compile(t.Context(), engine.User{UID: 2}, f)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("compiling took %v", took)
	}
	if err != nil {
		if codeOf(err) != protocol.CodeBadFormat {
			t.Errorf("%v", err)
		}
		return err.Error()
	}
	defer q.Close()
	m := next(q, -1)
	slowest := time.Duration(0)
	for n := range 200 {
		if m.Err != nil && codeOf(m.Err) != protocol.CodeFormatFailed {
			t.Errorf("%v", m.Err)
		}
		if m.Err != nil || m.Ended {
			return fmt.Sprintf("after %d masks, the slowest of %v: %+v", n, slowest, m.Err)
		}
		token := int32(-1)
		for _, id := range []int32{3 + 'a', 3 + 'x', 3 + '"', 3 + '{', 3 + '['} {
			if allowed(m, id) {
				token = id
				break
			}
		}
		if token < 0 {
			for id := range int32(32000) {
				if id > 2 && allowed(m, id) {
					token = id
					break
				}
			}
		}
		if token < 0 {
			return "only EOS is allowed"
		}
		begun := time.Now()
		m = next(q, token)
		slowest = max(slowest, time.Since(begun))
	}
	return fmt.Sprintf("200 masks, the slowest of %v", slowest)
}
