package jinja

import (
	"strconv"
	"strings"
)

// formatRun is a call of str.format.
type formatRun struct {
	run   *run
	args  arguments
	auto  int  // the next number of a field without one; -1 after one with a number
	begun bool // whether a field was automatic
}

// format is Python's str.format.
func (r *run) format(s str, a arguments) value {
	s.onlyPlain("format")
	f := &formatRun{run: r, args: a}
	return f.text(s, 2)
}

// text formats a text with fields. depth bounds fields in the specifications of others.
func (f *formatRun) text(s str, depth int) str {
	if depth == 0 {
		fail("max string recursion exceeded")
	}
	var b builder
	for s.text != "" {
		i := strings.IndexAny(s.text, "{}")
		if i < 0 {
			b.add(s)
			break
		}
		b.add(s.slice(0, i))
		if strings.HasPrefix(s.text[i+1:], s.text[i:i+1]) {
			b.add(s.slice(i, i+1))
			s = s.from(i + 2)
			continue
		}
		if s.text[i] == '}' {
			fail("single '}' encountered in format string")
		}
		n := fieldLength(s.text[i+1:])
		b.add(f.field(s.slice(i+1, i+1+n), depth))
		s = s.from(i + n + 2)
	}
	return b.str()
}

// fieldLength returns the length of a field, up to its closing bracket.
func fieldLength(s string) int {
	open := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	fail("expected '}' before end of string")
	return 0
}

// field formats a field: a name, a conversion after !, a specification after a colon.
func (f *formatRun) field(field str, depth int) str {
	end := nameEnd(field.text)
	name, spec, kind := field.slice(0, end), field.from(end), byte(0)
	if strings.HasPrefix(spec.text, "!") {
		if len(spec.text) < 2 || len(spec.text) > 2 && spec.text[2] != ':' {
			fail("expected ':' after conversion specifier")
		}
		kind, spec = spec.text[1], spec.from(2)
	}
	if spec.text != "" {
		spec = spec.from(1)
	}
	v := f.value(name)
	switch kind {
	case 's':
		v = f.run.text(v)
	case 'r':
		v = repr(v)
	case 'a':
		v = repr(v).ascii()
	case 0:
	default:
		fail("unknown conversion specifier '%c'", rune(kind))
	}
	if strings.ContainsAny(spec.text, "{}") {
		spec = f.text(spec, depth-1)
	}
	return f.run.formatValue(v, spec)
}

// nameEnd returns the length of a field's name: up to a colon or an exclamation mark outside of
// brackets.
func nameEnd(s string) int {
	inside := false
	for i := range len(s) {
		switch s[i] {
		case '[':
			inside = true
		case ']':
			inside = false
		case ':', '!':
			if !inside {
				return i
			}
		}
	}
	return len(s)
}

// value returns the value of a field's name, such as 0.name[key].
func (f *formatRun) value(name str) value {
	end := strings.IndexAny(name.text, ".[")
	if end < 0 {
		end = len(name.text)
	}
	v := f.argument(name.text[:end])
	for rest := name.from(end); rest.text != ""; {
		if rest.text[0] == '.' {
			rest = rest.from(1)
			end = strings.IndexAny(rest.text, ".[")
			if end < 0 {
				end = len(rest.text)
			}
			if end == 0 {
				fail("empty attribute in format string")
			}
			v, rest = getAttribute(v, rest.slice(0, end)), rest.from(end)
			continue
		}
		end = strings.IndexByte(rest.text, ']')
		if rest.text[0] != '[' || end < 2 {
			fail("missing ']' or empty attribute in format string")
		}
		v, rest = getItem(v, indexKey(rest.slice(1, end))), rest.from(end+1)
	}
	return v
}

// indexKey returns an index in brackets: an integer, or else a string.
func indexKey(s str) value {
	if i, err := strconv.ParseInt(s.text, 10, 64); err == nil && s.text[0] >= '0' && s.text[0] <= '9' {
		return i
	}
	return s
}

// argument returns a positional or a named argument.
func (f *formatRun) argument(name string) value {
	number, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.auto < 0 {
			fail("cannot switch from manual field specification to automatic field numbering")
		}
		number = f.auto
		f.auto++
		f.begun = true
	case err == nil && number >= 0:
		if f.begun {
			fail("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
	default:
		for i, n := range f.args.names {
			if n.text == name {
				return f.args.named[i]
			}
		}
		fail("no argument named '%.100s' to format", name)
	}
	if number >= len(f.args.positional) {
		fail("replacement index %d out of range for positional arguments", number)
	}
	return f.args.positional[number]
}
