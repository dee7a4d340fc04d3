package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// gpt2Pattern is the pattern of ByteLevel with use_regex. The others are published with Llama
// 3 and Qwen2 and differ only in the most digits of a match.
const (
	gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	llama3Pattern = llama3Words + `\p{N}{1,3}` + llama3Others
	qwen2Pattern  = llama3Words + `\p{N}` + llama3Others
	llama3Words   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	llama3Others  = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// A scanner returns the length in bytes of the first match in a non-empty text. The published
// patterns match at every position, so matches follow one another without a gap. A scanner
// gives the results of regexp2, many times faster; FuzzScanners compares the two.
type scanner func(p *pacer, text string) int

var scanners = map[string]scanner{
	gpt2Pattern:   scanGPT2,
	llama3Pattern: func(p *pacer, text string) int { return scanLlama3(p, text, 3) },
	qwen2Pattern:  func(p *pacer, text string) int { return scanLlama3(p, text, 1) },
}

// class is a class of characters that the patterns distinguish.
type class uint8

const (
	other class = iota
	letter
	number
	white
)

// asciiClasses are the classes of ASCII characters, which need no search in Unicode's tables.
var asciiClasses = func() (classes [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		classes[r] = unicodeClass(r)
	}
	return classes
}()

func unicodeClass(r rune) class {
	switch {
	case unicode.IsLetter(r) || within(since15["L"], r):
		return letter
	case unicode.IsSpace(r):
		return white
	case unicode.IsNumber(r) || within(since15["N"], r):
		return number
	}
	return other
}

// classAt returns the class and the bytes of the first character of text; 0 bytes at the end.
func classAt(text string) (class, int) {
	if text == "" {
		return other, 0
	}
	if text[0] < utf8.RuneSelf {
		return asciiClasses[text[0]], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return unicodeClass(r), size
}

// run returns the bytes of the run of class c at the beginning of text, of at most most
// characters.
func run(p *pacer, text string, c class, most int) int {
	n := 0
	for ; most > 0; most-- {
		is, size := classAt(text[n:])
		if is != c || size == 0 {
			break
		}
		n += size
		if uint(most)%block == 0 {
			p.spent(block * 10 * size)
		}
	}
	return n
}

// unlimited is more characters than any text has.
const unlimited = 1<<62 - 1

func scanGPT2(p *pacer, text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	if c, _ := classAt(text[space:]); c != white {
		return space + run(p, text[space:], c, unlimited)
	}
	return whiteSpace(text, run(p, text, white, unlimited))
}

func scanLlama3(p *pacer, text string, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	c, size := classAt(text)
	if c == letter || c == number {
		most := unlimited
		if c == number {
			most = digits
		}
		return run(p, text, c, most)
	}
	next, _ := classAt(text[size:])
	newline := text[0] == '\r' || text[0] == '\n'
	switch {
	case next == letter && !newline:
		return size + run(p, text[size:], letter, unlimited)
	case c == other:
		return punctuation(p, text, 0)
	case text[0] == ' ' && next == other:
		return punctuation(p, text, 1)
	}
	n := run(p, text, white, unlimited)
	for last := n; last > 0; last-- {
		if text[last-1] == '\r' || text[last-1] == '\n' {
			return last // \s*[\r\n]+ ends at the last newline
		}
	}
	return whiteSpace(text, n)
}

// punctuation returns the end of a match of [^\s\p{L}\p{N}]+[\r\n]* that begins at from.
func punctuation(p *pacer, text string, from int) int {
	n := from + run(p, text[from:], other, unlimited)
	for n < len(text) && (text[n] == '\r' || text[n] == '\n') {
		n++
	}
	return n
}

// whiteSpace returns the bytes of \s+(?!\S)|\s+ if text begins with n bytes of white space:
// all of them at the end of the text or if they are one character, else all but the last
// character.
func whiteSpace(text string, n int) int {
	_, last := utf8.DecodeLastRuneInString(text[:n])
	if n == len(text) || n == last {
		return n
	}
	return n - last
}

// contraction returns the bytes of 's, 't, 're, 've, 'm, 'll or 'd, or 0 if text does not
// begin with one. With fold case does not matter, and ſ (U+017F) matches s.
func contraction(text string, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if b := text[i]; fold && 'A' <= b && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return text[i]
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if lower(2) == 'e' {
			return 3
		}
	case 'l':
		if lower(2) == 'l' {
			return 3
		}
	case 0xC5: // the first byte of ſ
		if fold && lower(2) == 0xBF {
			return 3
		}
	}
	return 0
}
