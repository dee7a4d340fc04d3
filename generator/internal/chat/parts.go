package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// maxBrackets is how deep brackets may lie in others: the time of what follows
// grows with it.
const maxBrackets = 200

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
