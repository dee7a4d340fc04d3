package chat

import (
	"fmt"
	"strings"
)

// Names that the rewritten source uses; environment and render define them.
const (
	noneName  = "reel_none"
	ifName    = "reel_if"
	groupName = "reel_group"
)

// rewrite returns a template's source in a form that gonja reads as Jinja2 reads the original.
// It cuts white space around tags, with trim_blocks and lstrip_blocks as transformers has
// them, and removes the signs for that, and comments. The constant none becomes a name, since
// gonja does not distinguish none from undefined. Expressions that gonja cannot parse become
// calls: a conditional within brackets, and brackets before an attribute.
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
	trim      func(string) string // cuts the text behind the last tag; nil: nothing is cut
	lineStart bool                // the source's first line, or the last tag took a newline with it
	err       error
}

// next rewrites the text up to a tag, and the tag. It returns false at the end.
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

// findTag returns the offset of the next tag and its opening: "{{", "{%" or "{#"; "" if there
// is none.
func findTag(s string) (at int, kind string) {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i, s[i : i+2]
		}
	}
	return len(s), ""
}

// text writes literal text, cut as the tags on both sides demand. sign is that of the next
// tag, which is a block if it does not print.
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

// trimLine cuts the last line if it is white space only.
func trimLine(s string, lineStart bool) string {
	at := strings.LastIndexByte(s, '\n') + 1
	if at == 0 && !lineStart || strings.TrimFunc(s[at:], isPythonSpace) != "" {
		return s
	}
	return s[:at]
}

// literal writes text. A brace at its end is printed by a tag, so that it does not open a tag
// together with the following text.
func (r *rewriter) literal(s string) {
	body, brace := strings.CutSuffix(s, "{")
	r.out.WriteString(body)
	if brace {
		r.out.WriteString("{{ '{' }}")
	}
}

// after sets the cut of the text behind a tag that ends with sign. A block without a sign
// takes a newline with it.
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

// raw writes the text between raw and endraw as it is.
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

// printed returns a tag that prints text, which may contain tags.
func printed(text string) string {
	if text == "" {
		return ""
	}
	return `{{ "` + strings.NewReplacer(`\`, `\x5c`, `"`, `\"`, "\n", `\n`).Replace(text) + `" }}`
}

// firstName returns the name at the start of s, after white space, and the rest.
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

// tag writes a statement's or an expression's tag, without its signs.
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
