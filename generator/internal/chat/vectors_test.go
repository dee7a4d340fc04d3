package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// vectors is testdata/vectors.json, which testdata/make.py writes.
type vectors struct {
	Now           string
	Tokens        map[string]string
	Families      map[string]string // templates by name
	Conversations map[string][]protocol.Message
	Cases         []vector
}

type vector struct {
	Template     string // a template, or its name in Families
	Conversation string
	Answer       bool    `json:"add_generation_prompt"`
	Text         *string // Jinja2's text; nil with Raises
	Raises       *string // the text of raise_exception
	Different    bool    // a known difference: the result must differ
}

func readVectors(t testing.TB) (v vectors, now time.Time) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err == nil {
		now, err = time.Parse("2006-01-02T15:04:05.999999", v.Now)
	}
	if err != nil || len(v.Cases) == 0 {
		t.Fatal("no vectors: ", err)
	}
	return v, now
}

// TestVectors compares templates with Jinja2.
func TestVectors(t *testing.T) {
	v, now := readVectors(t)
	for _, c := range v.Cases {
		got, err := v.render(c, now)
		same := c.Text != nil && err == nil && got == *c.Text ||
			c.Raises != nil && errors.Is(err, ErrRefused) && strings.Contains(err.Error(), *c.Raises)
		if same == c.Different {
			t.Errorf("%.400q over %s\n gives %q, %v\n want  %q, or raises %q; different: %v",
				c.Template, c.Conversation, got, err, deref(c.Text), deref(c.Raises), c.Different)
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (v *vectors) render(c vector, now time.Time) (string, error) {
	source := c.Template
	if family, ok := v.Families[source]; ok {
		source = family
	}
	template, err := compile(Source{source, v.Tokens})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = template.render(&b, v.Conversations[c.Conversation], nil, c.Answer, now)
	return b.String(), err
}

// Brackets may be nested up to the bound.
func TestDeepBrackets(t *testing.T) {
	source := "{{ " + strings.Repeat("(", maxBrackets) + "1" + strings.Repeat(")", maxBrackets) + " }}"
	template, err := compile(Source{Template: source})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := template.render(&b, nil, nil, true, time.Time{}); err != nil || b.String() != "1" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
