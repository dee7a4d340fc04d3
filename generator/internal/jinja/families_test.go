package jinja_test

import (
	"encoding/json"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/jinja"
)

// familyVectors is the part of testdata/vectors.json that testdata/families.py makes.
type familyVectors struct {
	Tokens    map[string]string
	Families  map[string]string          // templates
	Dialogues map[string]json.RawMessage // messages
	Values    map[string]json.RawMessage // tools and documents
	Cases     []familyCase               `json:"family_cases"`
}

// familyCase is a conversation with tools, calls, parts or further fields, and what Jinja2 makes of it.
type familyCase struct {
	publishedCase
	Family, Dialogue string
	Answer           bool                       `json:"add_generation_prompt"`
	With             []string                   // names in Values
	Set              map[string]json.RawMessage // further variables
}

// published returns a case with its messages and variables.
func (v *familyVectors) published(t *testing.T, c familyCase) publishedCase {
	variables := map[string]json.RawMessage{}
	for name, value := range c.Set {
		variables[name] = value
	}
	for _, name := range c.With {
		variables[name] = v.Values[name]
	}
	data, err := json.Marshal(variables)
	if err != nil {
		t.Fatal(err)
	}
	p := c.publishedCase
	p.Template, p.Answer, p.Tokens, p.Variables, p.Messages = c.Family, c.Answer, v.Tokens, data, v.Dialogues[c.Dialogue]
	return p
}

func readFamilies(t *testing.T) (v familyVectors, now time.Time) {
	t.Helper()
	now = jinja.DecodeVectors(t, &v)
	if len(v.Cases) == 0 {
		t.Fatal("no vectors")
	}
	return v, now
}

// TestFamilyVectors compares each family's template with Jinja2 over conversations with tools, calls, results, parts
// and fields of the family's own, and checks that the request's texts stay data.
func TestFamilyVectors(t *testing.T) {
	v, now := readFamilies(t)
	for _, c := range v.Cases {
		p := v.published(t, c)
		template, err := jinja.Compile(v.Families[c.Family])
		if err != nil {
			t.Fatal(c.Family, ": ", err)
		}
		text, err := template.Render(p.context(now))
		cause, example := compare(p, text.String(), err)
		if cause == "" {
			cause, example = compareMarks(p, text, controlTokens(v.Families[c.Family]))
		}
		if cause != "" {
			t.Errorf("%s over %q, %v %s: %s\n    Jinja2 %s", c.Family, c.Dialogue, c.With, p.Variables, cause, example)
		}
	}
}

// TestFamilyVectorsAreVaried notices cases that were lost.
func TestFamilyVectorsAreVaried(t *testing.T) {
	v, _ := readFamilies(t)
	families, kinds := map[string]bool{}, map[string]int{}
	for _, c := range v.Cases {
		kind, _ := c.result()
		families[c.Family] = true
		kinds[kind]++
	}
	if len(families) < 17 || kinds["text"] < 100 || kinds["raises"] < 10 || kinds["fails"] < 10 {
		t.Errorf("%d families, %v", len(families), kinds)
	}
}
