package chat

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// TestMain also runs as the worker process.
func TestMain(m *testing.M) {
	if os.Getenv("REEL_TEST_WORKER") != "" {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func testCommand() *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "REEL_TEST_WORKER=1", "GORACE=atexit_sleep_ms=0")
	return c
}

// patience bounds work of milliseconds on a busy machine.
const patience = time.Minute

// newTemplate returns a template with ample time to render.
func newTemplate(t *testing.T, source string) *Template {
	t.Helper()
	template, err := New(Source{Template: source, Tokens: map[string]string{"bos_token": "<s>"}}, testCommand)
	if err != nil {
		t.Fatal(err)
	}
	template.limit = patience
	t.Cleanup(template.Close)
	return template
}

// only returns the only worker of a template, which must be idle.
func (t *Template) only(tb testing.TB) *worker {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) != 1 || len(t.busy) != 0 {
		tb.Fatalf("%d processes are idle, %d busy", len(t.idle), len(t.busy))
	}
	return t.idle[0]
}

// render renders messages without variables, to a text without marks.
func (t *Template) render(messages []protocol.Message, maxBytes int) (string, error) {
	text, err := t.Render(Request{Messages: messages, MaxBytes: maxBytes})
	return text.String(), err
}

var hello = []protocol.Message{{Role: "user", Content: "Hello"}}

const maxBytes = 1 << 20

func TestRender(t *testing.T) {
	template := newTemplate(t, "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"+
		"{% if add_generation_prompt %}>{% endif %}")
	for range 2 {
		if got, err := template.render(hello, maxBytes); got != "<s>[user] Hello\n>" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	long := strings.Repeat("é<\"\\\x01", 500_000)
	got, err := template.render([]protocol.Message{{Role: "user", Content: long}}, 8<<20)
	if err != nil || got != "<s>[user] "+long+"\n>" {
		t.Errorf("a long message: %d bytes, %v", len(got), err)
	}
}

func TestErrors(t *testing.T) {
	template := newTemplate(t, `{% if messages[0].content == 'bad' %}{{ raise_exception("é'tis bad") }}{% endif %}`+
		`{% if messages[0].content == 'div' %}{{ 1 % 0 }}{% endif %}{{ messages[0].content * 10 }}`)
	for content, c := range map[string]struct {
		want  error
		names string
	}{
		"bad":                              {ErrRefused, "é'tis bad"},
		"div":                              {ErrTemplate, "line 1: division by zero"},
		strings.Repeat("x", maxBytes/10+1): {ErrTooLong, "too long"},
	} {
		_, err := template.render([]protocol.Message{{Role: "user", Content: content}}, maxBytes)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%.10s: %v", content, err)
		}
	}
	// The worker survives these errors.
	before := template.only(t)
	got, err := template.render(hello, maxBytes)
	if got != strings.Repeat("Hello", 10) || err != nil || template.only(t) != before {
		t.Errorf("%q, %v", got, err)
	}
}

// hoard is a template that needs more memory than its process has.
const hoard = "{% set ns = namespace(l=[]) %}{% for a in range(99) %}" +
	"{% set ns.l = ns.l + ['x' * 16000000 ~ a] %}{% endfor %}"

// Hostile templates try to block the generator or to take its memory. Each ends its own
// worker at most; the next prompt gets another.
func TestHostile(t *testing.T) {
	const many = "range(100000)"
	loops := "{% for a in " + many + " %}{% for b in " + many + " %}{% for c in " + many + " %}"
	ends := "{% endfor %}{% endfor %}{% endfor %}"
	for name, c := range map[string]struct {
		attack, names string
		limit         time.Duration
	}{
		"time":  {loops + ends, "takes more than", 200 * time.Millisecond},
		"text":  {loops + "xxxxxxxxxxxxxxxx" + ends, "too long", patience},
		"depth": {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "1000 calls", patience},
		"doubled text": {"{% set ns = namespace(s='xxxxxxxx') %}" +
			"{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "a text of more", patience},
		"many texts":  {hoard, "memory or stack", patience},
		"a long list": {"{{ ([1] * 1000000) * 1000000 }}", "a list of more", patience},
		"deep values": {"{% set ns = namespace(l=1) %}{% for a in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}" +
			"{{ ns.l }}", "nested", patience},
		"repeated text": {"{{ ('x' * 1000000) * 1000000 }}", "a text of more", patience},
		"captured text": {"{% set s %}" + loops + strings.Repeat("x", 1<<16) + ends + "{% endset %}",
			"a text of more", patience},
		"a wide field":      {"{{ '%1000000000d'|format(1) }}", "", patience},
		"range":             {"{% for a in range(1000000000) %}{% endfor %}", "range of more", patience},
		"replaced":          {"{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}", "a text of more", patience},
		"centred":           {"{{ 'x'|center(100000000000) }}", "", patience},
		"a file":            {"{% include '/etc/passwd' %}", "include", patience},
		"another file":      {"{% import '/etc/passwd' as x %}", "import", patience},
		"parent":            {"{% extends '/etc/passwd' %}", "extends", patience},
		"changed arguments": {"{{ messages.append(1) }}", "append", patience},
	} {
		if underRace && strings.HasPrefix(c.names, "memory") {
			continue // memory has no bound there
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := "{% if messages[0].content != 'Hello' %}" + c.attack + "{% endif %}ok"
			template, err := New(Source{Template: source}, testCommand)
			if err == nil {
				template.limit = c.limit
				defer template.Close()
				_, err = template.render([]protocol.Message{{Role: "user", Content: "attack"}}, maxBytes)
			}
			if c.names == "" && err == nil { // harmless, which is allowed
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.names) ||
				!errors.Is(err, ErrTemplate) && !errors.Is(err, ErrTooLong) {
				t.Errorf("%v, want an error with %q", err, c.names)
			}
			if template != nil && len(template.idle) == 0 && strings.HasPrefix(c.names, "memory") {
				template.limit = patience
				if got, err := template.render(hello, maxBytes); got != "ok" || err != nil {
					t.Errorf("the next prompt is %q, %v", got, err)
				}
			}
		})
	}
}

// Templates that cannot be parsed, or fail later, are ErrTemplate.
func TestHostileSources(t *testing.T) {
	for name, source := range map[string]string{
		"open tag":      "{{ 1",
		"open block":    "{% if 1 %}",
		"unknown tag":   "{% what %}",
		"open string":   "{{ 'x }}",
		"open comment":  "{# x",
		"open raw":      "{% raw %}{% endra %}",
		"raw tag":       "{% raw",
		"brackets":      "{{ " + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200) + " }}",
		"many brackets": "{{ " + strings.Repeat("(", 200_000),
		"blocks":        strings.Repeat("{% if 1 %}", 3_000),
		"operators":     "{{ 1" + strings.Repeat("+-", 10) + " }}",
		"filter":        "{{ 1|random }}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template, err := New(Source{Template: source}, testCommand)
			if err == nil {
				_, err = template.render(hello, maxBytes)
				template.Close()
			}
			if !errors.Is(err, ErrTemplate) {
				t.Errorf("%v", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestNoWorker(t *testing.T) {
	for _, name := range []string{"/nowhere", "/bin/true", "/bin/cat"} {
		_, err := New(Source{Template: "x"}, func() *exec.Cmd { return exec.Command(name) })
		if !errors.Is(err, ErrTemplate) && name != "/bin/cat" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Close ends the worker. No other one is started after it.
func TestClose(t *testing.T) {
	template := newTemplate(t, "ok")
	process := template.only(t).command
	template.Close()
	if process.ProcessState == nil {
		t.Error("the process was not reaped")
	}
	_, err := template.render(hello, maxBytes)
	if !errors.Is(err, ErrTemplate) || len(template.idle)+len(template.busy) != 0 {
		t.Error(err)
	}
}

// A worker ends when the generator has ended, even while a template runs.
func TestOrphan(t *testing.T) {
	w, err := startWorker(testCommand())
	if err != nil {
		t.Fatal(err)
	}
	endless := "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" +
		"{% endfor %}{% endfor %}{% endfor %}"
	if r, err := w.ask(job{Source: &Source{Template: endless}}, patience); err != nil || r.Kind != "" {
		t.Fatal(r, err)
	}
	if err := w.jobs.Encode(job{Messages: hello, MaxBytes: maxBytes}); err != nil {
		t.Fatal(err)
	}
	_ = w.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- w.command.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		w.end()
		t.Error("the worker still runs")
	}
}

func TestManyAtOnce(t *testing.T) {
	template := newTemplate(t, "{{ messages[0].content }}")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			content := strings.Repeat("x", i)
			if got, err := template.render(say(content), maxBytes); got != content || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}

// llama3 is a template in the form of Llama 3's.
const llama3 = `{% set loop_messages = messages %}{% for message in loop_messages %}` +
	`{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim` +
	` + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}` +
	`{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}`

// BenchmarkRender renders 20 messages of 200 bytes, in the worker process.
func BenchmarkRender(b *testing.B) {
	template, err := New(Source{Template: llama3, Tokens: map[string]string{"bos_token": "<|begin_of_text|>"}}, testCommand)
	if err != nil {
		b.Fatal(err)
	}
	defer template.Close()
	messages := slices.Repeat(say(strings.Repeat("ten bytes ", 20)), 20)
	for b.Loop() {
		if _, err := template.render(messages, maxBytes); err != nil {
			b.Fatal(err)
		}
	}
}
