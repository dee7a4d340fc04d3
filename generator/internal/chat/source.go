package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// The names that the source's own are rewritten to; values.go gives them meaning.
const (
	noneName  = "reel_none"
	ifName    = "reel_if"
	groupName = "reel_group"
)

// rewrite returns a template's source in a form that gonja reads as Jinja2 reads
// the source. White space around tags is cut here, with trim_blocks and
// lstrip_blocks as transformers has them, and the marks for it are gone; so are
// comments. none becomes a name, since gonja can't tell none from undefined. What
// gonja can't parse becomes a call: a conditional within brackets, and brackets
// that an attribute follows.
func rewrite(source string) (string, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.TrimSuffix(strings.ReplaceAll(source, "\r", "\n"), "\n")
	r := rewriter{rest: source, lineStart: true}
	for r.next() {
	}
	return r.out.String(), r.err
}

// rewriter walks a source from tag to tag.
type rewriter struct {
	rest      string
	out       strings.Builder
	trim      func(string) string // what the tag before does to the text that follows; nil is nothing
	lineStart bool                // the tag before took a newline with it
	err       error
}

// next takes the text up to a tag, and the tag. It returns false at the end.
func (r *rewriter) next() bool {
	at, kind := findTag(r.rest)
	if kind == "" {
		r.text(r.rest, "", false)
		return false
	}
	text := r.rest[:at]
	r.rest = r.rest[at+2:]
	sign := ""
	if strings.HasPrefix(r.rest, "-") || kind != "{{" && strings.HasPrefix(r.rest, "+") {
		sign, r.rest = r.rest[:1], r.rest[1:]
	}
	r.text(text, sign, kind != "{{")
	switch kind {
	case "{#":
		r.comment()
	case "{%":
		if name, after := firstName(r.rest); name == "raw" {
			r.raw(after)
			break
		}
		r.tag("{%", "%}")
	default:
		r.tag("{{", "}}")
	}
	return r.err == nil
}

// findTag returns where the next tag opens, and with what.
func findTag(s string) (at int, kind string) {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i, s[i : i+2]
		}
	}
	return len(s), ""
}

// text writes literal text, cut as the tags on both sides ask for: sign is the
// mark of the one that follows, block says that it is none that prints.
func (r *rewriter) text(s, sign string, block bool) {
	whole := s
	if r.trim != nil {
		s = r.trim(s)
	}
	lineStart := r.lineStart || len(s) < len(whole) && strings.HasSuffix(whole[:len(whole)-len(s)], "\n")
	switch {
	case sign == "-":
		s = strings.TrimRightFunc(s, isPythonSpace)
	case sign == "" && block:
		s = trimLine(s, lineStart)
	}
	r.lineStart = false
	r.literal(s)
}

// trimLine cuts the white space of the last line, where it has nothing else.
func trimLine(s string, lineStart bool) string {
	at := strings.LastIndexByte(s, '\n') + 1
	if at == 0 && !lineStart || strings.TrimFunc(s[at:], isPythonSpace) != "" {
		return s
	}
	return s[:at]
}

// literal writes text. A brace at its end is printed by a tag of its own, lest
// it opens one with what follows.
func (r *rewriter) literal(s string) {
	body, brace := strings.CutSuffix(s, "{")
	r.out.WriteString(body)
	if brace {
		r.out.WriteString("{{ '{' }}")
	}
}

// after sets what the tag that ends with end does to the text behind it. block
// says that it takes a newline with it.
func (r *rewriter) after(sign string, block bool) {
	switch {
	case sign == "-":
		r.trim = func(s string) string { return strings.TrimLeftFunc(s, isPythonSpace) }
	case sign == "" && block:
		r.trim = func(s string) string { return strings.TrimPrefix(s, "\n") }
	default:
		r.trim = nil
	}
}

func (r *rewriter) comment() {
	body, rest, closed := strings.Cut(r.rest, "#}")
	if !closed {
		r.err = fmt.Errorf("%w: a comment has no end", ErrTemplate)
	}
	r.rest = rest
	sign := ""
	if strings.HasSuffix(body, "-") || strings.HasSuffix(body, "+") {
		sign = body[len(body)-1:]
	}
	r.after(sign, true)
}

// raw writes what stands between raw and endraw as it is.
func (r *rewriter) raw(after string) {
	open := strings.Index(after, "%}")
	if open < 0 {
		r.err = fmt.Errorf("%w: raw has no end", ErrTemplate)
		return
	}
	body := after[open+2:]
	if strings.TrimSpace(after[:open]) == "-" {
		body = strings.TrimLeftFunc(body, isPythonSpace)
	}
	for at := 0; ; at += 2 {
		next := strings.Index(body[at:], "{%")
		if next < 0 {
			r.err = fmt.Errorf("%w: raw has no endraw", ErrTemplate)
			return
		}
		at += next
		sign, tail := "", body[at+2:]
		if strings.HasPrefix(tail, "-") || strings.HasPrefix(tail, "+") {
			sign, tail = tail[:1], tail[1:]
		}
		name, end := firstName(tail)
		mark, rest, closed := strings.Cut(end, "%}")
		if mark = strings.TrimSpace(mark); name != "endraw" || !closed || mark != "" && mark != "-" && mark != "+" {
			continue
		}
		r.rest = rest
		text := body[:at]
		switch sign {
		case "-":
			text = strings.TrimRightFunc(text, isPythonSpace)
		case "":
			text = trimLine(text, false)
		}
		r.out.WriteString(printed(text))
		r.after(mark, true)
		return
	}
}

// printed is a tag that prints text, which may hold tags of its own.
func printed(text string) string {
	if text == "" {
		return ""
	}
	return `{{ "` + strings.NewReplacer(`\`, `\x5c`, `"`, `\"`, "\n", `\n`).Replace(text) + `" }}`
}

// firstName returns the name that s begins with, after white space, and the rest.
func firstName(s string) (name, rest string) {
	s = strings.TrimLeftFunc(s, isPythonSpace)
	n := 0
	for n < len(s) && isNameByte(s[n]) {
		n++
	}
	return s[:n], s[n:]
}

func isNameByte(b byte) bool {
	return b == '_' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b >= 0x80
}

// tag writes a tag of statements or of an expression, without its marks.
func (r *rewriter) tag(open, end string) {
	parts, rest, sign, err := scanTag(r.rest, end)
	if err != nil {
		r.err = err
		return
	}
	r.rest = rest
	r.after(sign, end == "%}")
	r.out.WriteString(open + " " + join(brackets(nones(backslashes(parts)))) + " " + end)
}

// scanTag cuts a tag's inside into strings, names, numbers, brackets, other
// characters and white space, up to end, which counts outside of brackets only.
func scanTag(s, end string) (parts []string, rest, sign string, err error) {
	depth := 0
	for s != "" {
		if depth == 0 {
			for _, sign := range []string{"", "-", "+"} {
				if strings.HasPrefix(s, sign+end) && (sign != "+" || end == "%}") {
					return parts, s[len(sign)+len(end):], sign, nil
				}
			}
		}
		n := partLength(s)
		if n == 0 {
			break
		}
		switch s[0] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		parts, s = append(parts, s[:n]), s[n:]
	}
	return nil, "", "", fmt.Errorf("%w: a tag has no %s", ErrTemplate, end)
}

// partLength returns the bytes of the first part, 0 for a string without an end.
func partLength(s string) int {
	same := func(is func(byte) bool) int {
		n := 1
		for n < len(s) && is(s[n]) {
			n++
		}
		return n
	}
	switch b := s[0]; {
	case b == '\'' || b == '"':
		for n := 1; n < len(s); n++ {
			switch s[n] {
			case '\\':
				n++
			case b:
				return n + 1
			}
		}
		return 0
	case isNameByte(b):
		return same(isNameByte)
	case isBlank(b):
		return same(isBlank)
	}
	return 1
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' }

func join(parts []string) string { return strings.TrimSpace(strings.Join(parts, "")) }

// backslashes writes an escaped backslash in a string by its number: behind one
// gonja takes the string's end for a quote in it.
func backslashes(parts []string) []string {
	for i, p := range parts {
		if isString(p) && strings.Contains(p, `\\`) {
			parts[i] = escapes.ReplaceAllStringFunc(p, func(e string) string {
				if e == `\\` {
					return `\x5c`
				}
				return e
			})
		}
	}
	return parts
}

var escapes = regexp.MustCompile(`(?s)\\.`)

// nones renames the constant none, where it is neither an attribute, a test, nor
// the name of an argument.
func nones(parts []string) []string {
	out, before := make([]string, 0, len(parts)), ""
	for i, p := range parts {
		if (p == "none" || p == "None") && before != "." && before != "is" && before != "is not" && before != "|" && !isAssigned(parts[i+1:]) {
			p = noneName
		}
		out = append(out, p)
		switch {
		case isBlank(p[0]):
		case p == "not" && before == "is":
			before = "is not"
		default:
			before = p
		}
	}
	return out
}

// isAssigned says that one equals sign, not two, comes next.
func isAssigned(parts []string) bool {
	for len(parts) > 0 && isBlank(parts[0][0]) {
		parts = parts[1:]
	}
	return len(parts) > 0 && parts[0] == "=" && (len(parts) == 1 || parts[1] != "=")
}

// brackets rewrites what stands within brackets. Of "a if b else c" all three are
// then evaluated: an error in the part that does not count counts here.
func brackets(parts []string) []string {
	var out []string
	for i := 0; i < len(parts); i++ {
		end := closing(parts[i:])
		if end < 0 {
			out = append(out, concatenated(out, parts[i])...)
			continue
		}
		elements := split(brackets(parts[i+1:i+end]), ",")
		if next := i + end + 1; len(elements) == 1 && parts[i] == "(" && isGroup(out) && next < len(parts) && strings.Contains(".[", parts[next]) {
			out = append(out, groupName)
		}
		out = append(out, parts[i])
		for k, element := range elements {
			if k > 0 {
				out = append(out, ",")
			}
			out = append(out, conditional(element)...)
		}
		out = append(out, parts[i+end])
		i += end
	}
	return out
}

// isGroup says that a bracket behind parts groups, and calls nothing.
func isGroup(parts []string) bool {
	last := lastPart(parts)
	switch last {
	case "", "if", "elif", "else", "and", "or", "not", "in", "is":
		return true
	}
	return !isNameByte(last[0]) && last != ")" && last != "]"
}

// concatenated returns a part; strings side by side are one.
func concatenated(before []string, part string) []string {
	if last := lastPart(before); isString(part) && last != "" && isString(last) {
		return []string{"~", part}
	}
	return []string{part}
}

func isString(part string) bool { return part[0] == '\'' || part[0] == '"' }

// lastPart is the last part that is no white space, "" where there is none.
func lastPart(parts []string) string {
	for i := len(parts) - 1; i >= 0; i-- {
		if !isBlank(parts[i][0]) {
			return parts[i]
		}
	}
	return ""
}

// closing returns the place of the bracket that closes the first part, -1 where
// that is no bracket, or open to the end.
func closing(parts []string) int {
	depth := 0
	for i, p := range parts {
		switch p {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		if depth <= 0 && i > 0 {
			return i
		}
		if depth <= 0 {
			return -1
		}
	}
	return -1
}

// split cuts parts at a separator outside of brackets.
func split(parts []string, separator string) [][]string {
	var out [][]string
	depth, from := 0, 0
	for i, p := range parts {
		switch p {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case separator:
			if depth == 0 {
				out = append(out, parts[from:i])
				from = i + 1
			}
		}
	}
	return append(out, parts[from:])
}

// conditional rewrites one element of a bracket's list.
func conditional(element []string) []string {
	var prefix []string
	if key := split(element, ":"); len(key) == 2 { // of a dict
		prefix, element = append(append([]string{}, key[0]...), ":"), key[1]
	}
	if named := split(element, "="); len(named) == 2 && isName(named[0]) {
		prefix, element = append(append(prefix, named[0]...), "="), named[1]
	}
	then := split(element, "if")
	if len(then) < 2 {
		return append(prefix, element...)
	}
	tail := element[len(then[0])+1:]
	cut := split(tail, "else")
	if len(cut) < 2 {
		return append(prefix, element...)
	}
	otherwise := conditional(tail[len(cut[0])+1:])
	out := append(prefix, ifName, "(")
	out = append(append(append(out, cut[0]...), ","), then[0]...)
	return append(append(append(out, ","), otherwise...), ")")
}

// isName says that parts are a name, and white space.
func isName(parts []string) bool {
	name := join(parts)
	first, rest := firstName(name)
	return first != "" && rest == ""
}
