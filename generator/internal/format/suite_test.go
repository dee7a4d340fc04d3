//go:build formats

package format

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// group is a schema of the JSON Schema test suite, with instances that are valid or not.
type group struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// drafts are the suite's folders, and the $schema that their schemas mean.
var drafts = map[string]string{
	"draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#",
	"draft7": "http://json-schema.org/draft-07/schema#", "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
	"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}

// counts are what became of the schemas and instances.
type counts struct {
	schemas, refused, followed, valid, taken, invalid, drawn, cut int
	causes                                                        map[string]int
}

// Every schema of the official test suite is followed or refused by name. If it is followed, each valid instance can
// be drawn, no invalid one can, and what is drawn at random is valid.
func TestOfficialSuite(t *testing.T) {
	if total := followSuite(t, ""); total.followed < 800 || total.valid < 1700 || total.drawn < 2300 {
		t.Errorf("less was followed than before: %+v", total)
	}
}

// The same for the suite's tests of the keyword format.
func TestOfficialFormats(t *testing.T) {
	if total := followSuite(t, "optional/format"); total.followed < 45 || total.taken < 580 {
		t.Errorf("less was followed than before: %+v", total)
	}
}

func followSuite(t *testing.T, folder string) counts {
	root := os.Getenv("REEL_SCHEMA_SUITE")
	if root == "" {
		t.Fatal("REEL_SCHEMA_SUITE is not set: sh format/suite.sh prints the folder")
	}
	s := newService(t, vocabulary(2000))
	total := counts{causes: map[string]int{}}
	for draft, meta := range drafts {
		names, err := filepath.Glob(filepath.Join(root, "tests", draft, folder, "*.json"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files: %v", draft, err)
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var groups []group
			if err := json.Unmarshal(raw, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				t.Run(draft+"/"+filepath.Base(name)+"/"+g.Description, func(t *testing.T) { total.group(t, s, g, meta) })
			}
		}
	}
	total.report(t)
	return total
}

func (c *counts) report(t *testing.T) {
	t.Logf("%d schemas: %d followed, %d refused by name; %d of %d valid instances taken, %d invalid ones; "+
		"%d answers drawn and valid, %d cut", c.schemas, c.followed, c.refused, c.taken, c.valid, c.invalid, c.drawn, c.cut)
	for _, cause := range slices.Sorted(maps.Keys(c.causes)) {
		t.Logf("%5d  %s", c.causes[cause], cause)
	}
}

func (c *counts) group(t *testing.T, s *Service, g group, meta string) {
	c.schemas++
	text := withDraft(g.Schema, meta)
	q, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSONSchema: text})
	if err != nil {
		c.refused++
		c.causes[causeOf(t, err)]++
		return
	}
	q.Close()
	c.followed++
	for _, test := range g.Tests {
		if strings.Contains(test.Description, "only an annotation") {
			continue // here the keyword format is followed
		}
		if test.Valid {
			c.valid++
			if s.takes(t, text, test.Data) {
				c.taken++
			} else if !narrower.MatchString(test.Description) {
				t.Errorf("%s: a valid instance cannot be drawn: %s of %s", test.Description, test.Data, text)
			}
		} else if s.takes(t, text, test.Data) {
			c.invalid++
			t.Errorf("%s: an invalid instance can be drawn: %s of %s", test.Description, test.Data, text)
		}
	}
	c.draws(t, s, text)
}

// narrower matches the instances of the keyword format that PROTOCOL.md says cannot be drawn.
var narrower = regexp.MustCompile("leap second.*offset|mixed format|a long valid ipv6|quoted string|IPv6-address-literal")

// quoted matches what an error says of one schema only.
var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'|/[^/]*/|\$ref \S+|-?[0-9.]+`)

// causeOf returns the cause of a refusal, without what is of one schema only.
func causeOf(t *testing.T, err error) string {
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != protocol.CodeBadFormat {
		t.Errorf("refused with %v", err)
		return ""
	}
	if strings.HasPrefix(e.Message, "format: keywords") {
		return e.Message
	}
	return quoted.ReplaceAllString(e.Message, "…")
}

// withDraft returns a schema that names its draft.
func withDraft(schema json.RawMessage, meta string) string {
	text := strings.TrimSpace(string(schema))
	if !strings.HasPrefix(text, "{") || strings.Contains(text, `"$schema"`) {
		return text
	}
	comma := ", "
	if strings.TrimSpace(text[1:]) == "}" {
		comma = ""
	}
	return fmt.Sprintf(`{"$schema": %q%s%s`, meta, comma, text[1:])
}

// maxSpellings is how many orders of an instance's keys are tried.
const maxSpellings = 200

// takes reports whether a completion can be the instance, in some order of its keys.
func (s *Service) takes(t *testing.T, schema string, instance json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(instance))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	for _, text := range spellings(v, schema) {
		q := s.compiled(t, protocol.Format{JSONSchema: schema})
		n, m := walk(q, text)
		whole := n == len(text) && (m.Ended || m.Err == nil && allowed(m, 0))
		q.Close()
		if whole {
			return true
		}
	}
	return false
}

// spellings returns the JSON texts of a value, one for each order of keys: first that of the schema.
func spellings(v any, schema string) []string {
	switch v := v.(type) {
	case []any:
		return wrap("[", joined(v, func(e any) []string { return spellings(e, schema) }), "]")
	case map[string]any:
		var all []string
		for _, keys := range permutations(inOrder(v, schema)) {
			members := func(k string) []string { return wrap(quote(k)+": ", spellings(v[k], schema), "") }
			all = append(all, wrap("{", joined(keys, members), "}")...)
			if len(all) > maxSpellings {
				return all[:maxSpellings]
			}
		}
		return all
	case string:
		return []string{quote(v)}
	case json.Number:
		return []string{number(v)}
	}
	text, _ := json.Marshal(v)
	return []string{string(text)}
}

// joined returns the texts of a list: each text of each element with each of the others.
func joined[T any](list []T, texts func(T) []string) []string {
	all := []string{""}
	for i, e := range list {
		var longer []string
		for _, begin := range all {
			for _, text := range texts(e) {
				if i > 0 {
					text = ", " + text
				}
				longer = append(longer, begin+text)
			}
		}
		all = longer[:min(len(longer), maxSpellings)]
	}
	return all
}

// inOrder returns the keys of an object in the order in which a schema names them, then the others.
func inOrder(v map[string]any, schema string) []string {
	place := func(key string) int {
		spelled, _ := json.Marshal(key)
		if i := strings.Index(schema, string(spelled)); i >= 0 {
			return i
		}
		return len(schema)
	}
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
	})
}

func wrap(before string, texts []string, after string) []string {
	for i := range texts {
		texts[i] = before + texts[i] + after
	}
	return texts
}

func permutations(keys []string) [][]string {
	if len(keys) <= 1 {
		return [][]string{keys}
	}
	var all [][]string
	for i, k := range keys {
		for _, rest := range permutations(slices.Concat(keys[:i], keys[i+1:])) {
			if all = append(all, append([]string{k}, rest...)); len(all) >= maxSpellings {
				return all
			}
		}
	}
	return all
}

// quote spells a string with the escapes that are needed.
func quote(s string) string {
	var b strings.Builder
	_ = b.WriteByte('"')
	for _, r := range s {
		if escaped := strings.IndexRune("\"\\\b\f\n\r\t", r); escaped >= 0 {
			b.WriteString(`\` + string(`"\bfnrt`[escaped]))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// number spells a number: a whole one without a fraction.
func number(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == float64(int64(f)) && f < 1<<53 && f > -1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}

// draws draws completions at random, and validates them.
func (c *counts) draws(t *testing.T, s *Service, schema string) {
	validator := compileSchema(t, schema)
	for seed := range uint64(3) {
		text, whole := drawn(s.compiled(t, protocol.Format{JSONSchema: schema}), rand.New(rand.NewPCG(seed, 9)))
		if !whole {
			c.cut++
			continue
		}
		c.drawn++
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err == nil {
			err = validator.Validate(v)
		}
		if err != nil {
			t.Errorf("%s was drawn, of %s: %v", text, schema, err)
		}
	}
}

func compileSchema(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("file:///schema.json", v); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("file:///schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return compiled
}

// drawn draws tokens at random until the text ends, and reports whether it did. After some tokens it prefers those
// that end strings, lists and objects.
func drawn(q *Sequence, r *rand.Rand) (text string, whole bool) {
	defer q.Close()
	v := vocabulary(2000)
	m := next(q, -1)
	for n := 0; n < 400 && !m.Ended; n++ {
		if m.Err != nil {
			return text + m.Err.Error(), true // no JSON
		}
		if allowed(m, 0) && (n > 40 || r.IntN(4) == 0) {
			return text, true
		}
		token := draw(r, m)
		for _, end := range `"}]` {
			if id := 3 + end; (n > 40 || r.IntN(8) == 0) && allowed(m, id) {
				token = id
			}
		}
		bytes, _ := v.Bytes(token)
		text += bytes
		m = next(q, token)
	}
	return text, m.Ended
}
