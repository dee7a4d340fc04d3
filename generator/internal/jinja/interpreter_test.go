package jinja

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/marked"
)

// render renders a template with a data text d, of at most 1000 bytes.
func render(source string) (string, error) {
	template, err := Compile(source)
	if err != nil {
		return "", err
	}
	text, err := template.Render(Context{map[string]any{"d": "é"}, time.Time{}, 1000})
	return text.String(), err
}

func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// Templates that go beyond a bound, or use something that is refused, fail with the cause and
// the line.
func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"\n{{ " + nested("(", "1", ")", maxNesting) + " }}":                   "line 2: more than 150",
		"{{ " + nested("[", "1", "]", maxNesting) + " }}":                     "line 1: more than 150",
		"{{ " + strings.Repeat("not ", maxNesting) + "1 }}":                   "more than 150",
		"{{ " + strings.Repeat("- ", maxNesting) + "1 }}":                     "more than 150",
		"{{ " + strings.Repeat("1 if 0 else ", maxNesting) + "1 }}":           "more than 150",
		nested("{% if 1 %}", "", "{% endif %}", maxNesting):                   "more than 150",
		"{{ 1" + strings.Repeat(" + 1", maxChain+2) + " }}":                   "line 1: more than 500",
		"{{ 1" + strings.Repeat(" or 1", maxChain+2) + " }}":                  "more than 500",
		"{{ 1" + strings.Repeat(" and 1", maxChain+2) + " }}":                 "more than 500",
		"{{ 1" + strings.Repeat(" if 1", maxChain+2) + " }}":                  "more than 500",
		"{{ 1" + strings.Repeat("|abs", maxChain+2) + " }}":                   "more than 500",
		"{{ 1" + strings.Repeat(".a", maxChain+2) + " }}":                     "more than 500",
		"{% filter trim" + strings.Repeat("|trim", maxChain+2) + " %}":        "more than 500",
		"{% set x " + strings.Repeat("|trim", maxChain+2) + " %}{% endset %}": "more than 500",
		"{% macro f() %}\n{{ f() }}{% endmacro %}{{ f() }}":                   "line 2: more than 1000 calls",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}":             "more than 1000 calls",
		"{% macro f(n) %}{{ f(n - 1) if n > 1 }}{% endmacro %}{{ f(1001) }}":  "more than 1000 calls",

		deepList + "{{ ns.l }}":                                  "more than 500 values are nested",
		deepList + "{{ ns.l|tojson }}":                           "more than 500 values are nested",
		deepList + "{{ ns.l == ns.k }}":                          "more than 500 values are nested",
		deepList + "{{ ns.l < ns.k }}":                           "more than 500 values are nested",
		"{{ 'x' * 70000000 }}":                                   "more than 16777216 bytes",
		"{{ (d * 8000000 ~ 'a') * 3 }}":                          "more than 16777216 bytes",
		"{% set x = 'x' * 16000000 %}{{ (x ~ x)|length }}":       "more than 16777216 bytes",
		"{{ '%99999999s' % 1 }}":                                 "more than 16777216 bytes",
		"{{ '%099999999d' % 1 }}":                                "more than 16777216 bytes",
		"{{ '%999999999s' % 1 }}":                                "too large",
		"{{ '%.99999f' % 1 }}":                                   "more than 10000 digits",
		"{{ '%.999999999f' % 1 }}":                               "too large",
		"{{ '{:99999999}'.format(1) }}":                          "more than 16777216 bytes",
		"{{ '{:099999999}'.format(1) }}":                         "more than 16777216 bytes",
		"{{ [1] * 9999999 }}":                                    "more than 1048576 items",
		"{{ ([1] * 600000 + [1] * 600000)|length }}":             "more than 1048576 items",
		"{{ range(100001) }}":                                    "more than 100000 numbers",
		"{{ range(-9223372036854775807, 9223372036854775807) }}": "more than 100000 numbers",
		"{{ 9223372036854775807 + 1 }}":                          "more than 64 bits",
		"{{ -9223372036854775807 - 2 }}":                         "more than 64 bits",
		"{{ 4611686018427387904 * 2 }}":                          "more than 64 bits",
		"{{ 3 ** 40 }}":                                          "more than 64 bits",
		"{{ 9223372036854775808 }}":                              "more than 64 bits",
		"{{ 1e30|int }}":                                         "more than 64 bits",
		"{{ '99999999999999999999'|int }}":                       "more than 64 bits",
		"{{ (-2) ** 0.5 }}":                                      "complex",

		"x\n\n{% include 'a' %}":                   "line 3: the tag include is not supported",
		"{% block a %}{% endblock %}":              "the tag block is not supported",
		"{% extends 'a' %}":                        "the tag extends is not supported",
		"{% import 'a' as b %}":                    "the tag import is not supported",
		"{% from 'a' import b %}":                  "the tag from is not supported",
		"{% autoescape true %}{% endautoescape %}": "the tag autoescape is not supported",
		"{% what %}":                               "unknown tag what",

		"{% for x in d %}\n{% endif %}":   "line 2: unknown tag endif; the open block ends with endfor or else",
		"{% for x in d %}\n":              "unexpected end of template, expected endfor or else",
		"{{ 1|urlize }}":                  "no filter named urlize",
		"{{ 1|pprint }}{{ 1|xmlattr }}":   "no filter named pprint",
		"{{ 1|random }}":                  "no filter named random",
		"{{ 1 is nothing }}":              "no test named nothing",
		"{{ d|map('nothing')|list }}":     "no filter named nothing",
		"{{ lipsum() }}":                  "lipsum is not supported",
		"{{ d.encode() }}":                "the method encode of str is not supported",
		"{{ '\\N{BULLET}' }}":             "character names",
		"{{ '\\ud800' }}":                 "no character",
		"{{ d|map('upper') }}":            "a generator has no text",
		"{{ d.append }}{{ d.nothing.x }}": "'str object' has no attribute 'nothing'",
		"{{ [].append(1) }}":              "access to attribute 'append' of 'list' object is unsafe",
		"{{ nothing + 'a' }}":             "'nothing' is undefined",
		"{% break %}":                     "outside of a loop",
		"{% for x in d %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}": "outside of a loop",
		"{# x":                           "missing end of comment",
		"{% raw %}":                      "missing end of raw",
		"{{ (1] }}":                      "unexpected ']', expected ')'",
		"{{ 1 $ 2 }}":                    "unexpected character '$'",
		"{{ raise_exception(d ~ 1) }}":   "é1",
		"{{ d * 501 }}":                  "the text is too long",
		"{{ f(**{1: 2}) }}":              "keywords must be strings",
		"{{ namespace(**{'a': 1}, b) }}": "invalid syntax for function call",
	} {
		got, err := render(source)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q gives %.100q, %v, want an error with %q", source, got, err, want)
		}
	}
	for source, want := range map[string]error{"{{ raise_exception('x') }}": ErrRaised, "{{ d * 501 }}": ErrTooLong} {
		if _, err := render(source); !errors.Is(err, want) {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// deepList sets ns.l and ns.k to lists in lists.
const deepList = "{% set ns = namespace(l=1, k=1) %}{% for i in range(9999) %}" +
	"{% set ns.l = [ns.l] %}{% set ns.k = [ns.k] %}{% endfor %}"

// The bounds themselves are allowed.
func TestBounds(t *testing.T) {
	for source, want := range map[string]string{
		"{{ " + nested("(", "1", ")", maxNesting-3) + " }}":                         "1",
		"{{ 1" + strings.Repeat(" + 1", maxChain) + " }}":                           "501",
		"{% macro f(n) %}{{ f(n - 1) if n > 1 else n }}{% endmacro %}{{ f(1000) }}": "1",
		"{{ ('x' * 16777216)|length }}":                                             "16777216",
		"{{ range(100000)|length }}":                                                "100000",
		"{{ d * 500 }}":                                                             strings.Repeat("é", 500),

		"{{ 9223372036854775806 + 1 }} {{ -9223372036854775807 - 1 }}": "9223372036854775807 -9223372036854775808",
		"{{ 2 ** 62 }} {{ 3037000499 ** 2 }}":                          "4611686018427387904 9223372030926249001",
	} {
		if got, err := render(source); got != want || err != nil {
			t.Errorf("%.100q gives %.100q, %v", source, got, err)
		}
	}
}

// A caller's values keep their types and their order.
func TestValues(t *testing.T) {
	template, err := Compile("{{ v }}|{{ bos }}|{{ v|tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]any{"b": []any{nil, true, 1, int64(-2), uint64(3), 1.0, "é"},
		"a": Dict{{"z", 1}, {"y", marked.Trusted("t")}}}
	text, err := template.Render(Context{map[string]any{"v": v, "bos": marked.Trusted("<s>")}, time.Time{}, 1000})
	want := "{'⟦a⟧': {'⟦z⟧': 1, '⟦y⟧': 't'}, '⟦b⟧': [None, True, 1, -2, 3, 1.0, '⟦é⟧']}|<s>|" +
		`{"⟦a⟧": {"⟦z⟧": 1, "⟦y⟧": "t"}, "⟦b⟧": [null, true, 1, -2, 3, 1.0, "⟦é⟧"]}`
	if got := show(text); got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for _, v := range []any{uint64(1 << 63), struct{}{}} {
		if _, err := template.Render(Context{map[string]any{"v": v}, time.Time{}, 1000}); err == nil {
			t.Errorf("%v is accepted", v)
		}
	}
}

// large matches templates that would only take time or memory.
var large = regexp.MustCompile(`[0-9]{4}|\*\*|e[0-9]|(?s:for.*for.*for.*for)`)

// No template makes the package panic with anything but an Error.
func FuzzRender(f *testing.F) {
	v, now := readVectors(f)
	for _, c := range v.Cases {
		f.Add(v.source(c))
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4000 || large.MatchString(source) {
			return
		}
		template, err := Compile(source)
		var e *Error
		if err == nil {
			var text marked.Text
			text, err = template.Render(v.context(vector{Conversation: "long"}, now))
			if n := text.Len(); n > 1<<20 {
				t.Errorf("%d bytes", n)
			}
		}
		if err != nil && !errors.As(err, &e) {
			t.Error(err)
		}
	})
}

// BenchmarkRender renders conversations with templates of families.
func BenchmarkRender(b *testing.B) {
	v, now := readVectors(b)
	for _, family := range []string{"llama3", "llama3.1", "qwen3"} {
		b.Run(family, func(b *testing.B) {
			template, err := Compile(v.Families[family])
			if err != nil {
				b.Fatal(err)
			}
			messages := []any{}
			for i := range 20 {
				role := []string{"user", "assistant"}[i%2]
				content := strings.Repeat(fmt.Sprint("word ", i), 30)
				messages = append(messages, Dict{{"role", role}, {"content", content}})
			}
			variables := map[string]any{"messages": messages, "add_generation_prompt": true, "bos_token": "<s>"}
			for b.Loop() {
				if _, err := template.Render(Context{variables, now, 1 << 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
