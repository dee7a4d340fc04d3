package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// pattern is a regular expression of a pre-tokenizer. It cannot match the empty string and has
// no nested quantifiers.
type pattern struct {
	scan  scanner // for a published pattern without gaps; else nil
	find  finder  // for a simple pattern with gaps; else nil
	re    *regexp2.Regexp
	limit time.Duration // of one search by re
}

// errSlow means that a pattern takes too long on a text. Patterns that no family publishes may
// take quadratic time.
var errSlow = errors.New("the pre-tokenizer's pattern takes too long")

// maxSplit bounds the time of a search by regexp2.
const maxSplit = 5 * time.Second

func newPattern(source string) (*pattern, error) {
	translated, err := translate(source)
	if err != nil {
		return nil, fmt.Errorf("pattern %.200q: %w", source, err)
	}
	re, err := regexp2.Compile(translated, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("%w: pattern %.200q: %w", ErrInvalid, source, err)
	}
	re.MatchTimeout = maxSplit
	return &pattern{scanners[source], newFinder(source), re, maxSplit}, nil
}

// split calls emit with the matches in text and with the texts between them, in order.
func (p *pattern) split(pace *pacer, text string, emit func(string)) error {
	if p.find != nil {
		p.splitFound(pace, text, emit)
		return nil
	}
	if p.scan == nil {
		pieces, err := p.search(pace, text)
		for _, piece := range pieces {
			emit(piece)
		}
		return err
	}
	for text != "" {
		n := p.scan(pace, text)
		emit(text[:n])
		text = text[n:]
	}
	return nil
}

// search returns the pieces of split, found with regexp2.
func (p *pattern) search(pace *pacer, text string) (pieces []string, err error) {
	// regexp2 counts in runes: convert the text once and track the offset in bytes.
	begun := time.Now()
	m, err := p.re.FindRunesMatch([]rune(text))
	runes, from := 0, 0
	for ; m != nil; m, err = p.re.FindNextMatch(m) {
		pace.spent(500)
		start := from + byteLen(text[from:], m.Index-runes)
		end := start + byteLen(text[start:], m.Length)
		if from < start {
			pieces = append(pieces, text[from:start])
		}
		pieces = append(pieces, text[start:end])
		runes, from = m.Index+m.Length, end
		if time.Since(begun) > p.limit {
			return nil, errSlow
		}
	}
	if err != nil {
		return nil, errSlow // the only error of regexp2 here
	}
	if from < len(text) {
		pieces = append(pieces, text[from:])
	}
	return pieces, nil
}

// byteLen returns the bytes of the first n runes of s.
func byteLen(s string, n int) (bytes int) {
	for range n {
		_, size := utf8.DecodeRuneInString(s[bytes:])
		bytes += size
	}
	return bytes
}

const maxPattern = 4096 // bytes

// translate checks a pattern written for Oniguruma, which tokenizers uses, and rewrites it for
// regexp2. It accepts only constructs with the same meaning in both. It spells out case
// folding and the characters that newer versions of Unicode add to categories.
func translate(source string) (string, error) {
	if len(source) > maxPattern {
		return "", fmt.Errorf("%w: longer than %d bytes", ErrUnsupported, maxPattern)
	}
	t := translator{rest: source}
	part := t.alternatives()
	if t.err == nil && t.rest != "" {
		t.refuse(t.rest[:1])
	}
	if t.err == nil && part.empty {
		t.err = fmt.Errorf("%w: the pattern can match nothing", ErrUnsupported)
	}
	return t.out.String(), t.err
}

// translator parses a pattern by recursive descent. After an error it consumes no more.
type translator struct {
	rest  string
	out   strings.Builder
	fold  bool // inside (?i:
	depth int
	err   error
}

// part describes a parsed part of a pattern.
type part struct {
	empty   bool // it can match the empty string
	repeats bool // it contains a quantifier
}

func (t *translator) refuse(construct string) {
	if t.err == nil {
		t.err = fmt.Errorf("%w: %q in a pattern", ErrUnsupported, construct)
	}
	t.rest = ""
}

// take consumes s if the rest begins with it, and reports whether it did.
func (t *translator) take(s string) bool {
	rest, ok := strings.CutPrefix(t.rest, s)
	t.rest = rest
	return ok
}

func (t *translator) rune() rune {
	r, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[size:]
	return r
}

func (t *translator) alternatives() part {
	all := t.sequence()
	for t.take("|") {
		t.out.WriteByte('|')
		next := t.sequence()
		all.empty = all.empty || next.empty
		all.repeats = all.repeats || next.repeats
	}
	return all
}

func (t *translator) sequence() part {
	all := part{empty: true}
	for t.rest != "" && t.rest[0] != '|' && t.rest[0] != ')' {
		next := t.item()
		all.empty = all.empty && next.empty
		all.repeats = all.repeats || next.repeats
	}
	return all
}

// item parses an atom and its quantifier. It refuses nested quantifiers: they could take
// exponential time, and no published pattern needs them.
func (t *translator) item() part {
	p := t.atom()
	low, ok := t.quantifier()
	if !ok {
		return p
	}
	if p.repeats && t.err == nil {
		t.refuse("nested quantifiers")
	}
	return part{empty: p.empty || low == 0, repeats: true}
}

func (t *translator) atom() part {
	switch {
	case t.take("(?i:"):
		return t.group("(?:", true, false)
	case t.take("(?:"):
		return t.group("(?:", t.fold, false)
	case t.take("(?!"):
		return t.group("(?!", t.fold, true)
	case t.take("(?="):
		return t.group("(?=", t.fold, true)
	case strings.HasPrefix(t.rest, "(?"):
		t.refuse(t.rest[:min(4, len(t.rest))])
	case t.take("("):
		return t.group("(?:", t.fold, false)
	case t.take("["):
		t.class()
	case t.take("$"): // at the end of every line in Oniguruma, where only \n ends a line
		t.out.WriteString(`(?=\n|\z)`)
		return part{empty: true, repeats: true}
	case t.take(`\`):
		t.escape(false)
	default:
		t.literal()
	}
	return part{}
}

// group parses up to the closing parenthesis. A lookahead matches the empty string.
func (t *translator) group(open string, fold, lookahead bool) part {
	if t.depth++; t.depth > 16 {
		t.refuse("groups deeper than 16")
	}
	outer := t.fold
	t.fold = fold
	t.out.WriteString(open)
	p := t.alternatives()
	if !t.take(")") {
		t.refuse(open + " without )")
	}
	t.out.WriteByte(')')
	t.fold = outer
	t.depth--
	if lookahead {
		return part{empty: true, repeats: true}
	}
	return p
}

// multiFolds are pairs of ASCII letters that are the case folding of one character. In
// Oniguruma (?i:ss) matches ß, in regexp2 it does not.
var multiFolds = []string{"ff", "fi", "fl", "ss", "st"}

func (t *translator) literal() {
	if t.fold {
		for _, f := range multiFolds {
			if len(t.rest) >= 2 && strings.EqualFold(t.rest[:2], f) {
				t.refuse("(?i:" + f)
				return
			}
		}
	}
	r := t.rune()
	switch {
	case t.err != nil:
	case strings.ContainsRune(`()[]{}|?*+.^$`, r):
		t.refuse(string(r))
	case !t.fold || r < utf8.RuneSelf && !unicode.IsLetter(r):
		t.out.WriteString(quote(r))
	case r < utf8.RuneSelf:
		t.out.WriteString(folded(r))
	default:
		t.refuse("(?i:" + string(r))
	}
}

// folded returns the class of the characters that fold to an ASCII letter, for example s, S
// and U+017F for s.
func folded(r rune) string {
	class := "[" + string(r)
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		class += string(f)
	}
	return class + "]"
}

// quote returns r as a literal, inside classes and outside.
func quote(r rune) string {
	if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return fmt.Sprintf(`\x%02X`, r)
	}
	return string(r)
}

// class parses a character class after the opening bracket.
func (t *translator) class() {
	t.out.WriteByte('[')
	if t.take("^") {
		t.out.WriteByte('^')
	}
	if strings.HasPrefix(t.rest, "]") {
		t.refuse("[]")
	}
	for t.err == nil && !t.take("]") {
		t.classItem()
	}
	t.out.WriteByte(']')
}

// classItem parses a character, a range, or an escape. It refuses [ and &&, which have a
// special meaning inside a class of Oniguruma.
func (t *translator) classItem() {
	switch {
	case t.rest == "":
		t.refuse("[ without ]")
	case strings.HasPrefix(t.rest, "[") || strings.HasPrefix(t.rest, "&&") || strings.HasPrefix(t.rest, "-"):
		t.refuse("[" + t.rest[:1])
	case t.fold:
		t.refuse("class in (?i:")
	case t.take(`\`):
		t.escape(true)
	default:
		low := t.rune()
		t.out.WriteString(quote(low))
		if strings.HasPrefix(t.rest, "-]") || !t.take("-") {
			return
		}
		high := t.rune()
		if strings.ContainsRune(`[\`, high) || high < low {
			t.refuse(string(low) + "-" + string(high))
			return
		}
		t.out.WriteString("-" + quote(high))
	}
}

// escape parses the rest of an escape after the backslash.
func (t *translator) escape(inClass bool) {
	if t.rest == "" {
		t.refuse(`\`)
		return
	}
	switch r := t.rune(); {
	case r == 'p' || r == 'P':
		t.property(r, inClass)
	case strings.ContainsRune("sSrnt", r):
		t.out.WriteString(`\` + string(r))
	case r < utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r)):
		t.out.WriteString(quote(r))
	default:
		t.refuse(`\` + string(r))
	}
}

// property parses {category} after \p or \P. Inside a class it refuses \P: the added
// characters of a category can only be listed there, not excluded.
func (t *translator) property(p rune, inClass bool) {
	name, rest, closed := strings.Cut(t.rest, "}")
	name, opened := strings.CutPrefix(name, "{")
	if _, known := since15[name]; !opened || !closed || !known || t.fold || p == 'P' && inClass {
		t.refuse(`\` + string(p) + t.rest[:min(8, len(t.rest))])
		return
	}
	t.rest = rest
	switch {
	case inClass:
		t.out.WriteString(members16(name))
	case p == 'P':
		t.out.WriteString("[^" + members16(name) + "]")
	default:
		t.out.WriteString("[" + members16(name) + "]")
	}
}

// quantifier parses a greedy quantifier, if there is one, and returns its lower bound. It
// refuses a second one after it, which would make it lazy or possessive.
func (t *translator) quantifier() (low int, ok bool) {
	before := t.rest
	switch {
	case t.take("?"), t.take("*"):
	case t.take("+"):
		low = 1
	case strings.HasPrefix(t.rest, "{"):
		low = t.interval()
	default:
		return 0, false
	}
	if t.rest != "" && strings.ContainsRune("?*+{", rune(t.rest[0])) {
		t.refuse(before[:len(before)-len(t.rest)+1])
	}
	t.out.WriteString(before[:len(before)-len(t.rest)])
	return low, true
}

// interval parses {n}, {n,} or {n,m}, each below 1024.
func (t *translator) interval() (low int) {
	body, rest, ok := strings.Cut(t.rest[1:], "}")
	from, to, ranged := strings.Cut(body, ",")
	least, err := strconv.ParseUint(from, 10, 10)
	most := least
	if err == nil && ranged && to != "" {
		most, err = strconv.ParseUint(to, 10, 10)
	}
	if !ok || err != nil || most < least {
		t.refuse("{" + body)
		return 0
	}
	t.rest = rest
	return int(least)
}
