package jinja

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/marked"
)

// show writes a text with its data in brackets.
func show(t marked.Text) string {
	var b strings.Builder
	for _, p := range t {
		if p.Data {
			b.WriteString("⟦" + p.Text + "⟧")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// markCases have the data d = "Ab c", e = " x\ny ", f = "é", l = ["Ab", "c"], m = {"k": "v"} and
// n = 65. The data of the result is in brackets.
var markCases = []struct{ template, want string }{
	{"<{{ d }}>", "<⟦Ab c⟧>"},
	{"{{ '<' + d + '>' }}{{ '<' ~ d ~ 1 }}", "<⟦Ab c⟧><⟦Ab c⟧1"},
	{"{{ ('<' + d + '>')[:2] }}{{ ('<' + d)[::-1] }}{{ ('<' + d)[1] }}{{ (d + '>')[-1] }}", "<⟦Ac bA⟧<⟦A⟧>"},
	{"{{ e|trim }}|{{ (e ~ '. ').strip() }}|{{ e.lstrip() }}|{{ e.rstrip() }}|{{ d.strip('cA') }}",
		"⟦x\ny⟧|⟦x\ny ⟧.|⟦x\ny ⟧|⟦ x\ny⟧|⟦b ⟧"},
	{"{{ d|tojson }}{{ {'a': [d, 1]}|tojson }}{{ m|tojson(indent=1) }}",
		"\"⟦Ab c⟧\"{\"a\": [\"⟦Ab c⟧\", 1]}{\n \"⟦k⟧\": \"⟦v⟧\"\n}"},
	{"{{ e|tojson }}{{ ('é<' + f)|tojson(ensure_ascii=true) }}{{ '%a' % f }}",
		`"⟦ x\ny ⟧""\u00e9<⟦\u00e9⟧"'⟦\xe9⟧'`},
	{"{{ d.split() }}{{ ('a-' + d).split('-') }}{{ d.rsplit('b', 1) }}",
		"['⟦Ab⟧', '⟦c⟧']['a', '⟦Ab c⟧']['⟦A⟧', '⟦ c⟧']"},
	{"{{ e.splitlines() }}{{ d.partition(' ') }}{{ d.rpartition('c')[0] }}",
		"['⟦ x⟧', '⟦y ⟧']('⟦Ab⟧', ' ', '⟦c⟧')⟦Ab ⟧"},
	{"{{ d|replace('b', '<>') }}{{ 'xyx'.replace('x', d, 1) }}{{ 'ab'.replace('', d) }}",
		"⟦A⟧<>⟦ cAb c⟧yx⟦Ab c⟧a⟦Ab c⟧b⟦Ab c⟧"},
	{"{{ d|upper }}{{ d.lower() }}{{ d|title }}{{ d.capitalize() }}{{ ('x' + d).swapcase() }}{{ d.casefold() }}",
		"⟦AB Cab cAb CAb c⟧X⟦aB Cab c⟧"},
	{"{{ e|indent(2) }}{{ d.center(8) }}|{{ d.ljust(5, '.') }}{{ d.zfill(6) }}",
		"⟦ x⟧\n  ⟦y ⟧  ⟦Ab c⟧  |⟦Ab c⟧.00⟦Ab c⟧"},
	{"{{ '%s|%5s|%r' % (d, 'x', d) }}{{ '%s'|format(d) }}{{ (d ~ '%s') % 'x' }}",
		"⟦Ab c⟧|    x|'⟦Ab c⟧'⟦Ab cAb c⟧x"},
	{"{{ '{}|{:>6}|{x!r}'.format(d, d, x=d) }}{{ '{:{}<5}'.format('x', m.k) }}",
		"⟦Ab c⟧|  ⟦Ab c⟧|'⟦Ab c⟧'x⟦vvvv⟧"},
	{"{{ '%c' % n }}{{ '{:c}'.format(n) }}{{ '%d' % n }}", "⟦AA⟧65"},
	{"{{ x|default(d) }}{{ d|default('x') }}{{ '<' if d else d }}{{ d or 'x' }}", "⟦Ab cAb c⟧<⟦Ab c⟧"},
	{"{{ l }}{{ m }}{{ (d,) }}{{ l|string }}{{ m.items() }}",
		"['⟦Ab⟧', '⟦c⟧']{'⟦k⟧': '⟦v⟧'}('⟦Ab c⟧',)" +
			"['⟦Ab⟧', '⟦c⟧']dict_items([('⟦k⟧', '⟦v⟧')])"},
	{"{{ l|join('<') }}{{ ['<', '>']|join(d) }}{{ ','.join(l) }}", "⟦Ab⟧<⟦c⟧<⟦Ab c⟧>⟦Ab⟧,⟦c⟧"},
	{"{{ d|list|join }}{{ d|first }}{{ d|last }}{{ d|reverse }}{{ l|sort|first }}{{ l|max }}", "⟦Ab cAcc bAAbc⟧"},
	{"{{ (l + ['<'])|unique|list }}{{ l|batch(1)|list }}{{ l|map('upper')|list }}{{ l|select|list|first }}",
		"['⟦Ab⟧', '⟦c⟧', '<'][['⟦Ab⟧'], ['⟦c⟧']]['⟦AB⟧', '⟦C⟧']⟦Ab⟧"},
	{"{% for c in d %}{{ c }}<{% endfor %}{% for k, v in m.items() %}{{ k }}={{ v }}{% endfor %}",
		"⟦A⟧<⟦b⟧<⟦ ⟧<⟦c⟧<⟦k⟧=⟦v⟧"},
	{"{% macro f(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call f(d) %}{{ m.k }}.{% endcall %}", "<⟦Ab cv⟧.>"},
	{"{% macro f() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ f(d, **m) }}", "{'⟦k⟧': '⟦v⟧'}('⟦Ab c⟧',)"},
	{"{% set s %}<{{ d }}>{% endset %}{{ s[1:] }}{% filter upper %}x{{ d }}{% endfilter %}", "⟦Ab c⟧>X⟦AB C⟧"},
	{"{% set ns = namespace(s='') %}{% for x in l %}{% set ns.s = ns.s + x + '<' %}{% endfor %}{{ ns.s }}",
		"⟦Ab⟧<⟦c⟧<"},
	{"{{ d * 2 }}{{ ('<' + d) * 2 }}", "⟦Ab cAb c⟧<⟦Ab c⟧<⟦Ab c⟧"},
	{"{{ ('<' + m.k)|e }}{{ (m.k + '&')|e|upper }}{{ ('<b>' + d + '</b>')|striptags }}",
		"&lt;⟦vV⟧&AMP;⟦Ab⟧ ⟦c⟧"},
	{"{{ d|truncate(3, true, '<', 0) }}{{ d|wordwrap(2) }}{{ d|urlencode }}{{ e.expandtabs() }}",
		"⟦Ab⟧<⟦Ab⟧\n⟦cAb%20c x\ny ⟧"},
	{"{{ strftime_now('%Y') }}{{ strftime_now('%Y' + m.k) }}", "2026⟦2026v⟧"},
	{"{{ d.removeprefix('A') }}{{ l|groupby(0) }}{{ joiner(d)() }}{{ cycler(d).next() }}{{ dict(a=d).a }}",
		"⟦b c⟧[('⟦A⟧', ['⟦Ab⟧']), ('⟦c⟧', ['⟦c⟧'])]⟦Ab cAb c⟧"},
	{"{{ loop }}{% for x in l %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle(x, '<') }}{% endfor %}",
		"⟦cAbAb⟧<"},
	{"{% for x in [l] recursive %}{{ x if x is string else loop(x) }}<{% endfor %}", "⟦Ab⟧<⟦c⟧<<"},
}

// Each operation keeps the marks of its inputs' characters.
func TestMarks(t *testing.T) {
	c := Context{Now: time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC), MaxBytes: 1000, Variables: map[string]any{
		"d": "Ab c", "e": " x\ny ", "l": []any{"Ab", "c"}, "m": map[string]any{"k": "v"}, "n": int64(65), "f": "é",
	}}
	for _, m := range markCases {
		template, err := Compile(m.template)
		if err != nil {
			t.Fatal(m.template, err)
		}
		text, err := template.Render(c)
		if got := show(text); got != m.want || err != nil {
			t.Errorf("%s\n gives %s, %v\n want  %s", m.template, got, err, m.want)
		}
	}
}

// randomTemplate returns a template with operations on the data d, l and m. It spells only ASCII.
func randomTemplate(r *rand.Rand) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	filters := []string{"trim", "upper", "lower", "title", "capitalize", "reverse", "string", "list", "first", "last",
		"tojson", "tojson(indent=2)", "replace('-', '<>')", "replace('a', d)", "indent(2, true)",
		"join('/')", "sort", "unique|list", "batch(2)|list", "map('trim')|list", "select|list", "length",
		"default('x')",
		"truncate(4, true, '..', 0)", "wordwrap(4)", "center(9)", "e", "forceescape", "striptags",
		"format(d)", "items|list", "dictsort", "groupby(0)", "slice(2)|list", "int", "max", "min",
		"sum(start=[])", "safe"}
	methods := []string{"strip()", "lstrip('-')", "rstrip()", "split('-')", "rsplit('-', 1)", "split()", "splitlines()",
		"partition('-')", "rpartition(' ')", "replace('-', '_')", "upper()", "title()", "swapcase()", "casefold()",
		"center(9, '*')", "zfill(9)", "ljust(9, d[0])", "join(l)", "format(d, x=l)", "items()", "keys()|list",
		"get('k', d)",
		"removeprefix(d)", "expandtabs(2)", "k", "copy()"}
	var expr func(depth int) string
	expr = func(depth int) string {
		if depth == 0 {
			return pick("d", "d", "l", "m", "'a-b'", "'<|x|>'", "3", "d[1:]", "l[0]", "m.k", "'{}'", "'%s'")
		}
		e := func() string { return expr(depth - 1) }
		switch r.IntN(9) {
		case 0:
			return fmt.Sprintf("(%s %s %s)", e(), pick("+", "~", "~", "*", "%"), e())
		case 1, 2:
			return fmt.Sprintf("(%s)|%s", e(), pick(filters...))
		case 3, 4:
			return fmt.Sprintf("(%s).%s", e(), pick(methods...))
		case 5:
			return fmt.Sprintf("(%s)%s", e(), pick("[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "['k']"))
		case 6:
			return fmt.Sprintf("[%s, %s]", e(), e())
		case 7:
			return fmt.Sprintf("{'k': %s, %s: 1}", e(), pick("d", "'j'"))
		}
		return fmt.Sprintf("('%s' %% (%s, %s))", pick("%s-%r", "%5s|%r", "%-9s%.2s"), e(), e())
	}
	e := expr(3)
	switch r.IntN(6) {
	case 0:
		return "{% for x in " + e + " %}<{{ x }}>{{ loop.nextitem }}{% endfor %}"
	case 1:
		return "{% set s %}[{{ " + e + " }}]{% endset %}{{ s[1:] ~ d }}"
	case 2:
		return "{% macro f(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call f(" + e + ") %}<{{ d }}{% endcall %}"
	case 3:
		return "{% filter trim %}{{ " + e + " }} - {% endfilter %}"
	}
	return "{{ " + e + " }}"
}

// ofClass returns data whose letters are characters from first on, which are printable and have no case.
func ofClass(first rune) map[string]any {
	text := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return first + r - 'a'
			}
			return r
		}, s)
	}
	return map[string]any{
		"d": text("ab-c d\n e"), "l": []any{text("x-"), text(" yz"), ""},
		"m": map[string]any{text("q"): text("r s"), "k": text("t")},
	}
}

// checkMarks renders a template with two sets of data that are ordered alike. Characters of data
// are data, and everything else is the same. It reports whether the template renders.
func checkMarks(t *testing.T, source string) bool {
	template, err := Compile(source)
	if err != nil {
		return false
	}
	trusted := [2]string{}
	for i, first := range []rune{0x4e00, 0x5e00} {
		text, err := template.Render(Context{ofClass(first), time.Time{}, 1 << 16})
		if err != nil {
			return false
		}
		for _, p := range text {
			if p.Data {
				continue
			}
			trusted[i] += p.Text
			if strings.ContainsFunc(p.Text, func(r rune) bool { return r >= 0x80 }) {
				t.Fatalf("%s\n gives trusted data: %s", source, show(text))
			}
		}
	}
	if trusted[0] != trusted[1] {
		t.Fatalf("%s\n has trusted text %q or %q, which depends on the data", source, trusted[0], trusted[1])
	}
	return true
}

// Random templates never give data a trusted mark.
func TestMarksOfRandomTemplates(t *testing.T) {
	r, rendered := rand.New(rand.NewPCG(1, 2)), 0
	for range 5000 {
		if checkMarks(t, randomTemplate(r)) {
			rendered++
		}
	}
	if rendered < 1500 {
		t.Errorf("only %d templates were rendered", rendered)
	}
}

func FuzzMarks(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { checkMarks(t, randomTemplate(rand.New(rand.NewPCG(a, b)))) })
}
