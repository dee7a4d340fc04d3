package jinja_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
)

// publishedCase is a line of the cases.jsonl that testdata/cases.py writes.
type publishedCase struct {
	Template  string
	Set       string
	Answer    bool
	Tokens    map[string]string
	Variables json.RawMessage
	Messages  json.RawMessage
	Text      *string
	Raises    *string
	Fails     *string
}

// result is the kind of Jinja2's result, and its error.
func (c publishedCase) result() (kind, failure string) {
	switch {
	case c.Text != nil:
		return "text", ""
	case c.Raises != nil:
		return "raises", *c.Raises
	}
	return "fails", *c.Fails
}

// TestPublishedTemplates compares the templates in the directory REEL_TEMPLATES with Jinja2, and
// writes what differs to differences.txt there. make chat-templates calls it.
func TestPublishedTemplates(t *testing.T) {
	dir := os.Getenv("REEL_TEMPLATES")
	if dir == "" {
		t.Skip("no directory with templates and their cases.jsonl in REEL_TEMPLATES")
	}
	d := &differences{groups: map[string]*difference{}, counts: map[string]int{}}
	if err := d.read(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "differences.txt")
	if err := os.WriteFile(file, []byte(d.report()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + d.summary())
	if d.counts["different"] > 0 || d.counts["same text"] == 0 {
		t.Errorf("%d of the cases differ: see %s", d.counts["different"], file)
	}
}

// differences collects the results of all cases.
type differences struct {
	now time.Time

	mu        sync.Mutex
	templates int
	groups    map[string]*difference // by cause
	counts    map[string]int
}

// difference is a group of cases that differ alike.
type difference struct {
	cause     string
	cases     int
	templates map[string]bool
	examples  string
}

// read runs the cases of cases.jsonl. Those of one template are neighbours.
func (d *differences) read(dir string) error {
	f, err := os.Open(filepath.Join(dir, "cases.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	var head struct{ Now string }
	if err := lines.Decode(&head); err != nil {
		return err
	}
	if d.now, err = time.Parse("2006-01-02T15:04:05.999999", head.Now); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var cases []publishedCase
	for {
		var c publishedCase
		err := lines.Decode(&c)
		if len(cases) > 0 && (err != nil || c.Template != cases[0].Template) {
			d.templates++
			all := cases
			cases = nil
			free <- struct{}{}
			running.Go(func() { d.template(dir, all); <-free })
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		cases = append(cases, c)
	}
}

// template runs the cases of one template.
func (d *differences) template(dir string, cases []publishedCase) {
	source, err := os.ReadFile(filepath.Join(dir, cases[0].Template))
	if err != nil {
		d.add(cases[0], "no template", err.Error())
		return
	}
	template, failure := jinja.Compile(string(source))
	controls := controlTokens(string(source))
	for _, c := range cases {
		var text marked.Text
		err := failure
		if failure == nil {
			text, err = template.Render(c.context(d.now))
		}
		cause, example := compare(c, text.String(), err)
		if cause == "" {
			cause, example = compareMarks(c, text, controls)
		}
		d.add(c, cause, example)
	}
}

// context returns what the template sees. Objects keep their order.
func (c publishedCase) context(now time.Time) jinja.Context {
	variables := map[string]any{"tools": nil, "documents": nil}
	for _, pair := range ordered(c.Variables).(jinja.Dict) {
		variables[pair.Key] = pair.Value
	}
	for name, token := range c.Tokens {
		variables[name] = marked.Trusted(token)
	}
	variables["messages"], variables["add_generation_prompt"] = ordered(c.Messages), c.Answer
	return jinja.Context{Variables: variables, Now: now, MaxBytes: 1 << 20}
}

// ordered decodes JSON for a template.
func ordered(data json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return orderedValue(d)
}

func orderedValue(d *json.Decoder) any {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	switch v := token.(type) {
	case json.Delim:
		return orderedItems(d, v == '[')
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	}
	return token
}

// orderedItems decodes the rest of an array or an object.
func orderedItems(d *json.Decoder, array bool) any {
	list, dict := []any{}, jinja.Dict{}
	for d.More() {
		if array {
			list = append(list, orderedValue(d))
			continue
		}
		key := orderedValue(d).(string)
		dict = append(dict, jinja.Pair{Key: key, Value: orderedValue(d)})
	}
	_, _ = d.Token()
	if array {
		return list
	}
	return dict
}

// particulars are the parts of an error that do not tell its cause.
var particulars = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9]+`)

// compare returns the cause of a difference, or an empty string, and how the results differ.
func compare(c publishedCase, text string, err error) (cause, example string) {
	kind, failure := c.result()
	alike := func(s string) string { return particulars.ReplaceAllString(fmt.Sprintf("%.120s", s), "…") }
	switch raised := errors.Is(err, jinja.ErrRaised); {
	case err != nil && kind == "text":
		return "fails here: " + alike(err.Error()), "a text\n    here   " + err.Error()
	case err != nil && raised != (kind == "raises"):
		return "another kind of error: " + alike(err.Error()), failure + "\n    here   " + err.Error()
	case raised && err.Error() != failure:
		return "other words in raise_exception", failure + "\n    here   " + err.Error()
	case err == nil && kind != "text":
		return "text here: " + alike(failure), fmt.Sprintf("%s\n    here   %.300q", failure, text)
	case err == nil && text != *c.Text:
		return "other text: " + c.Template, firstDifference(text, *c.Text)
	}
	return "", ""
}

func firstDifference(here, there string) string {
	at := 0
	for at < min(len(here), len(there)) && here[at] == there[at] {
		at++
	}
	around := func(s string) string { return s[max(0, at-60):min(len(s), at+80)] }
	return fmt.Sprintf("%q\n    here   %q", around(there), around(here))
}

var controlToken = regexp.MustCompile(`<\|[^<>|\s]{1,40}\|>|\[/?INST\]|</?s>|<(start|end)_of_turn>`)

// controlTokens returns the parts of a template that look like control tokens.
func controlTokens(source string) []string {
	return slices.Compact(slices.Sorted(slices.Values(controlToken.FindAllString(source, -1))))
}

// private are characters that only the requests of cases.py have.
const private = "\ue000\ue001"

// compareMarks checks that no character of a request is trusted, and that the template's own
// control tokens are.
func compareMarks(c publishedCase, text marked.Text, controls []string) (cause, example string) {
	var data strings.Builder // the text, with zeros for trusted pieces
	for _, p := range text {
		switch {
		case p.Data:
			data.WriteString(p.Text)
		case strings.ContainsAny(p.Text, private):
			return "trusts a request's text", fmt.Sprintf("%.200q", p.Text)
		default:
			data.WriteString(strings.Repeat("\x00", len(p.Text)))
		}
	}
	for _, token := range controls {
		if strings.Contains(data.String(), token) && !bytes.Contains(c.Messages, []byte(token)) &&
			!bytes.Contains(c.Variables, []byte(token)) {
			return "does not trust a control token", token
		}
	}
	return "", ""
}

// add counts a case. cause is empty if it is as in Jinja2.
func (d *differences) add(c publishedCase, cause, example string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts["set "+c.Set]++
	if cause == "" {
		kind, _ := c.result()
		d.counts["same "+kind]++
		return
	}
	d.counts["different"]++
	g := d.groups[cause]
	if g == nil {
		g = &difference{cause: cause, templates: map[string]bool{}}
		d.groups[cause] = g
	}
	if !g.templates[c.Template] && len(g.examples) < 4000 {
		g.examples += fmt.Sprintf("  %s, answer %v, %.400s, over %.600s\n    Jinja2 %s\n",
			c.Template, c.Answer, c.Variables, c.Messages, example)
	}
	g.cases++
	g.templates[c.Template] = true
}

func (d *differences) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8d templates\n", d.templates)
	for _, k := range slices.Sorted(maps.Keys(d.counts)) {
		fmt.Fprintf(&b, "%8d %s\n", d.counts[k], k)
	}
	return b.String()
}

// report lists the groups, those with the most templates first, and then their examples.
func (d *differences) report() string {
	groups := slices.SortedFunc(maps.Values(d.groups), func(a, b *difference) int {
		return cmp.Or(len(b.templates)-len(a.templates), strings.Compare(a.cause, b.cause))
	})
	list, examples := d.summary(), ""
	for _, g := range groups {
		line := fmt.Sprintf("%d templates, %d cases: %s\n", len(g.templates), g.cases, g.cause)
		list += line
		examples += "\n" + line + g.examples
	}
	return list + examples
}
