package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// vectors is testdata/vectors.json, which testdata/make.py writes.
type vectors struct {
	Tokens        map[string]string
	Families      map[string]string // templates by name
	Conversations map[string][]struct{ Role, Content string }
	Cases         []vector
}

type vector struct {
	Template     string // a template, or its name in Families
	Conversation string
	Answer       bool    `json:"add_generation_prompt"`
	Text         *string // Jinja2's text
	Raises       *string // the text of raise_exception
	Fails        *string // another error of Jinja2 or Python
}

func readVectors(t testing.TB) (v vectors, now time.Time) {
	t.Helper()
	now = DecodeVectors(t, &v)
	if len(v.Cases) == 0 {
		t.Fatal("no vectors")
	}
	return v, now
}

// DecodeVectors reads testdata/vectors.json into what v points to, and returns the time at which its texts were made.
func DecodeVectors(t testing.TB, v any) (now time.Time) {
	t.Helper()
	var of struct{ Now string }
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = errors.Join(json.Unmarshal(data, v), json.Unmarshal(data, &of))
	}
	if err == nil {
		now, err = time.Parse("2006-01-02T15:04:05.999999", of.Now)
	}
	if err != nil {
		t.Fatal("no vectors: ", err)
	}
	return now
}

// source returns a case's template.
func (v *vectors) source(c vector) string {
	if family, ok := v.Families[c.Template]; ok {
		return family
	}
	return c.Template
}

// context returns what a case's template sees.
func (v *vectors) context(c vector, now time.Time) Context {
	variables := map[string]any{"tools": nil, "documents": nil, "add_generation_prompt": c.Answer}
	for name, token := range v.Tokens {
		variables[name] = token
	}
	messages := []any{}
	for _, m := range v.Conversations[c.Conversation] {
		messages = append(messages, Dict{{"role", m.Role}, {"content", m.Content}})
	}
	variables["messages"] = messages
	return Context{variables, now, 1 << 20}
}

func (v *vectors) render(c vector, now time.Time) (string, error) {
	template, err := Compile(v.source(c))
	if err != nil {
		return "", err
	}
	text, err := template.Render(v.context(c, now))
	return text.String(), err
}

// TestVectors compares templates with Jinja2.
func TestVectors(t *testing.T) {
	v, now := readVectors(t)
	for _, c := range v.Cases {
		got, err := v.render(c, now)
		same := c.Text != nil && err == nil && got == *c.Text ||
			c.Raises != nil && errors.Is(err, ErrRaised) && strings.Contains(err.Error(), *c.Raises) ||
			c.Fails != nil && err != nil && !errors.Is(err, ErrRaised)
		if !same {
			t.Errorf("%.400q over %s\n gives %q, %v\n want  %q, or raises %q, or fails with %q",
				c.Template, c.Conversation, got, err, deref(c.Text), deref(c.Raises), deref(c.Fails))
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
