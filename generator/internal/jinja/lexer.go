package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	tokenEnd kind = iota
	tokenText
	tokenBlockBegin
	tokenBlockEnd
	tokenPrintBegin
	tokenPrintEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

// token is a token of a template. Its text is the literal's value for texts and strings, and
// the source for the other kinds.
type token struct {
	kind kind
	text string
	line int
}

func (t token) is(text string) bool {
	return (t.kind == tokenOperator || t.kind == tokenName) && t.text == text
}

// describe names a token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokenEnd:
		return "end of template"
	case tokenText:
		return "template text"
	case tokenBlockBegin:
		return "begin of statement block"
	case tokenBlockEnd:
		return "end of statement block"
	case tokenPrintBegin:
		return "begin of print statement"
	case tokenPrintEnd:
		return "end of print statement"
	case tokenString:
		return "string"
	}
	return t.text
}

// lexer cuts a template into tokens, with Jinja2's options trim_blocks and lstrip_blocks.
type lexer struct {
	source    string
	at        int
	line      int
	lineStart bool // whether the last match ended with a newline, or there was none
	tokens    []token
	brackets  []byte // the closing brackets that are due
}

// tokenize returns the tokens of a template. The last one is tokenEnd.
func tokenize(source string) []token {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.at < len(l.source) {
		l.text()
	}
	l.emit(tokenEnd, "")
	return l.tokens
}

func (l *lexer) emit(k kind, text string) {
	l.tokens = append(l.tokens, token{k, text, l.line})
}

// skip moves on by n bytes and counts lines.
func (l *lexer) skip(n int) {
	passed := l.source[l.at : l.at+n]
	l.line += strings.Count(passed, "\n")
	l.lineStart = strings.HasSuffix(passed, "\n")
	l.at += n
}

// spaceLength returns the length of the white space that s begins with.
func spaceLength(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// text reads text up to a tag, and the tag.
func (l *lexer) text() {
	start, rest := l.at, l.source[l.at:]
	n := tagStart(rest)
	if n < 0 {
		l.emit(tokenText, rest)
		l.skip(len(rest))
		return
	}
	tag, sign := rest[n:n+2], signOf(rest[n+2:])
	l.emitText(l.strip(rest[:n], sign, tag == "{{"))
	l.skip(n)
	line := l.line
	if raw := rawLength(rest[n:]); raw > 0 {
		l.skip(raw)
		l.raw(line)
		return
	}
	l.skip(2 + len(sign))
	switch tag {
	case "{#":
		l.comment(line)
	case "{%":
		l.emit(tokenBlockBegin, "")
		l.expression("%}", tokenBlockEnd)
	case "{{":
		l.emit(tokenPrintBegin, "")
		l.expression("}}", tokenPrintEnd)
	}
	if l.at == start {
		failAt(l.line, "the template cannot be read")
	}
}

func (l *lexer) emitText(text string) {
	if text != "" {
		l.emit(tokenText, text)
	}
}

// tagStart returns the place of the first tag in s, or -1.
func tagStart(s string) int {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 || at+i+1 >= len(s) {
			return -1
		}
		at += i
		if strings.IndexByte("{%#", s[at+1]) >= 0 {
			return at
		}
	}
}

// signOf returns the sign, - or + or nothing, that s begins with.
func signOf(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1]
	}
	return ""
}

// strip removes white space at the end of a text in front of a tag with a sign.
func (l *lexer) strip(text, sign string, prints bool) string {
	if sign == "-" {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == "+" || prints {
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

// rawLength returns the length of a tag {% raw %} that s begins with, with the white space that
// it strips, or 0.
func rawLength(s string) int {
	return wordTag(s, "raw", func(rest string) int {
		if n := strings.TrimPrefix(rest, "-%}"); n != rest {
			return 3 + spaceLength(n)
		}
		if strings.HasPrefix(rest, "%}") {
			return 2
		}
		return 0
	})
}

// wordTag returns the length of a tag with one word that s begins with, or 0. end returns the
// length of its end.
func wordTag(s, word string, end func(string) int) int {
	rest, ok := strings.CutPrefix(s, "{%")
	if !ok {
		return 0
	}
	rest = rest[len(signOf(rest)):]
	rest = rest[spaceLength(rest):]
	if rest, ok = strings.CutPrefix(rest, word); !ok {
		return 0
	}
	rest = rest[spaceLength(rest):]
	n := end(rest)
	if n == 0 {
		return 0
	}
	return len(s) - len(rest) + n
}

// tagEnd returns the length of a tag's end, with the white space that it strips, or 0.
func tagEnd(s, end string) int {
	switch {
	case strings.HasPrefix(s, "+"+end) && end != "}}":
		return 1 + len(end)
	case strings.HasPrefix(s, "-"+end):
		n := 1 + len(end)
		return n + spaceLength(s[n:])
	case strings.HasPrefix(s, end+"\n") && end != "}}":
		return len(end) + 1
	case strings.HasPrefix(s, end):
		return len(end)
	}
	return 0
}

func (l *lexer) comment(line int) {
	for i := l.at; i < len(l.source); i++ {
		if n := tagEnd(l.source[i:], "#}"); n > 0 {
			l.skip(i + n - l.at)
			return
		}
	}
	failAt(line, "missing end of comment tag")
}

// raw reads the text of a raw block.
func (l *lexer) raw(line int) {
	rest := l.source[l.at:]
	for i := 0; i < len(rest); i++ {
		n := wordTag(rest[i:], "endraw", func(s string) int { return tagEnd(s, "%}") })
		if n > 0 {
			l.emitText(l.strip(rest[:i], signOf(rest[i+2:]), false))
			l.skip(i + n)
			return
		}
	}
	failAt(line, "missing end of raw directive")
}

// expression reads the tokens of a tag, and its end.
func (l *lexer) expression(end string, endKind kind) {
	l.brackets = l.brackets[:0]
	for l.at < len(l.source) {
		rest := l.source[l.at:]
		if n := tagEnd(rest, end); n > 0 && len(l.brackets) == 0 {
			l.emit(endKind, end)
			l.skip(n)
			return
		}
		if n := spaceLength(rest); n > 0 {
			l.skip(n)
			continue
		}
		l.one(rest)
	}
}

// one reads one token of an expression.
func (l *lexer) one(rest string) {
	if n := floatLength(rest, l.at > 0 && l.source[l.at-1] == '.'); n > 0 {
		l.take(tokenFloat, n)
	} else if n := integerLength(rest); n > 0 {
		l.take(tokenInteger, n)
	} else if n := nameLength(rest); n > 0 {
		l.take(tokenName, n)
	} else if n := stringLength(rest); n > 0 {
		l.emit(tokenString, unescape(rest[1:n-1], l.line))
		l.skip(n)
	} else if n := operatorLength(rest); n > 0 {
		l.bracket(rest[0])
		l.take(tokenOperator, n)
	} else {
		r, _ := utf8.DecodeRuneInString(rest)
		failAt(l.line, "unexpected character %q", r)
	}
}

func (l *lexer) take(k kind, n int) {
	l.emit(k, l.source[l.at:l.at+n])
	l.skip(n)
}

// bracket checks that brackets are closed in their order.
func (l *lexer) bracket(c byte) {
	switch i := strings.IndexByte("([{)]}", c); {
	case i >= 3:
		n := len(l.brackets)
		if n == 0 {
			failAt(l.line, "unexpected '%c'", c)
		}
		if due := l.brackets[n-1]; due != c {
			failAt(l.line, "unexpected '%c', expected '%c'", c, due)
		}
		l.brackets = l.brackets[:n-1]
	case i >= 0:
		l.brackets = append(l.brackets, ")]}"[i])
	}
}

var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
	">", "<", "=", ".", ":", "|", ",", ";"}

func operatorLength(s string) int {
	i := slices.IndexFunc(operators, func(o string) bool { return strings.HasPrefix(s, o) })
	if i < 0 {
		return 0
	}
	return len(operators[i])
}
