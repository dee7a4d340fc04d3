package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// maxBrackets bounds the nesting of brackets, since the time to rewrite them grows with it.
const maxBrackets = 200

// scanTag splits a tag's content into parts: strings, names, numbers, white space, and single
// brackets and other characters. It stops at end outside of brackets, and returns the rest of
// s behind it and the sign in front of it ("-", "+" or "").
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
			if depth++; depth > maxBrackets {
				return nil, "", "", fmt.Errorf("%w: brackets within more than %d others", ErrTemplate, maxBrackets)
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		parts, s = append(parts, s[:n]), s[n:]
	}
	return nil, "", "", fmt.Errorf("%w: a tag has no %s", ErrTemplate, end)
}

// partLength returns the length of the first part in bytes, or 0 for an unfinished string.
func partLength(s string) int {
	run := func(is func(byte) bool) int {
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
		return run(isNameByte)
	case isBlank(b):
		return run(isBlank)
	}
	return 1
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' }

func join(parts []string) string { return strings.TrimSpace(strings.Join(parts, "")) }

// backslashes replaces escaped backslashes in strings by \x5c. gonja would take a quote after
// an escaped backslash for an escaped quote.
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

// nones renames the constant none, unless it is an attribute, a test, a filter, or the name of
// an argument.
func nones(parts []string) []string {
	out, before := make([]string, 0, len(parts)), ""
	for i, p := range parts {
		constant := before != "." && before != "is" && before != "is not" && before != "|" && !isAssigned(parts[i+1:])
		if constant && (p == "none" || p == "None") {
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

// isAssigned reports whether the next part is a single equals sign.
func isAssigned(parts []string) bool {
	for len(parts) > 0 && isBlank(parts[0][0]) {
		parts = parts[1:]
	}
	return len(parts) > 0 && parts[0] == "=" && (len(parts) == 1 || parts[1] != "=")
}

// brackets rewrites the content of brackets. A conditional "a if b else c" becomes a call,
// which evaluates a, b and c: unlike in Jinja2, an error in the unused one is an error.
func brackets(parts []string) []string {
	var out []string
	for i := 0; i < len(parts); i++ {
		end := closing(parts[i:])
		if end < 0 {
			out = append(out, concatenated(out, parts[i])...)
			continue
		}
		elements := split(brackets(parts[i+1:i+end]), ",")
		next := i + end + 1
		hasAttribute := next < len(parts) && strings.Contains(".[", parts[next])
		if hasAttribute && len(elements) == 1 && parts[i] == "(" && isGroup(out) {
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

// isGroup reports whether a bracket after parts groups an expression and is not a call.
func isGroup(parts []string) bool {
	last := lastPart(parts)
	switch last {
	case "", "if", "elif", "else", "and", "or", "not", "in", "is":
		return true
	}
	return !isNameByte(last[0]) && last != ")" && last != "]"
}

// concatenated returns part, with the operator ~ in front of it if it is a string after a
// string: adjacent strings are one in Jinja2.
func concatenated(before []string, part string) []string {
	if last := lastPart(before); isString(part) && last != "" && isString(last) {
		return []string{"~", part}
	}
	return []string{part}
}

func isString(part string) bool { return part[0] == '\'' || part[0] == '"' }

// lastPart returns the last part that is not white space, or "".
func lastPart(parts []string) string {
	for i := len(parts) - 1; i >= 0; i-- {
		if !isBlank(parts[i][0]) {
			return parts[i]
		}
	}
	return ""
}

// nesting returns 1 for an opening bracket, -1 for a closing one, and 0 for any other part.
func nesting(part string) int {
	switch part {
	case "(", "[", "{":
		return 1
	case ")", "]", "}":
		return -1
	}
	return 0
}

// closing returns the index of the bracket that closes the first part. It returns -1 if the
// first part is no bracket, or is not closed.
func closing(parts []string) int {
	depth := 0
	for i, p := range parts {
		depth += nesting(p)
		if depth <= 0 && i > 0 {
			return i
		}
		if depth <= 0 {
			return -1
		}
	}
	return -1
}

// split splits parts at each separator outside of brackets.
func split(parts []string, separator string) [][]string {
	var out [][]string
	depth, from := 0, 0
	for i, p := range parts {
		depth += nesting(p)
		if p == separator && depth == 0 {
			out = append(out, parts[from:i])
			from = i + 1
		}
	}
	return append(out, parts[from:])
}

// conditional rewrites the conditional in one element of a bracket's list, if there is one.
func conditional(element []string) []string {
	var prefix []string
	if key := split(element, ":"); len(key) == 2 { // an item of a dict
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

// isName reports whether parts are a name, with or without white space around it.
func isName(parts []string) bool {
	name := join(parts)
	first, rest := firstName(name)
	return first != "" && rest == ""
}
