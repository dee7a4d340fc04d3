package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is a format specification, such as *^+#010,.2f.
type spec struct {
	fill      str
	align     byte // 0: the type's own
	sign      byte // 0: only a minus
	alt       bool
	width     int
	group     string // between digits: a comma, an underscore or nothing
	precision int    // -1: none
	verb      byte   // 0: the type's own
}

// formatValue is Python's format(v, spec).
func (r *run) formatValue(v value, text str) str {
	if text.text == "" {
		return r.text(v)
	}
	s := parseSpec(text)
	switch v := v.(type) {
	case str:
		return s.formatString(v)
	case bool, int64, float64:
		return s.formatNumber(v)
	}
	fail("unsupported format string passed to %s.__format__", typeName(v))
	return str{}
}

func parseSpec(text str) spec {
	s := spec{fill: literal(" "), precision: -1}
	_, n := utf8.DecodeRuneInString(text.text)
	isAlign := func(i int) bool { return i < len(text.text) && strings.IndexByte("<>=^", text.text[i]) >= 0 }
	switch {
	case isAlign(n):
		s.fill, s.align, text = text.slice(0, n), text.text[n], text.from(n+1)
	case isAlign(0):
		s.align, text = text.text[0], text.from(1)
	}
	rest := text.text
	take := func(set string) byte {
		if rest == "" || strings.IndexByte(set, rest[0]) < 0 {
			return 0
		}
		c := rest[0]
		rest = rest[1:]
		return c
	}
	s.sign = take("+- ")
	s.alt = take("#") != 0
	if take("0") != 0 && s.align == 0 {
		s.fill, s.align = literal("0"), '='
	}
	s.width = takeNumber(&rest)
	if c := take(",_"); c != 0 {
		s.group = string(c)
	}
	if take(".") != 0 {
		if rest == "" || rest[0] < '0' || rest[0] > '9' {
			fail("format specifier missing precision")
		}
		s.precision = takeNumber(&rest)
	}
	if rest != "" {
		s.verb = rest[0]
		rest = rest[1:]
	}
	if rest != "" {
		fail("invalid format specifier")
	}
	return s
}

func takeNumber(rest *string) int {
	n := 0
	for n < len(*rest) && (*rest)[n] >= '0' && (*rest)[n] <= '9' {
		n++
	}
	if n > 8 {
		fail("the width or precision %.20s of a format is too large", (*rest)[:n])
	}
	i, _ := strconv.Atoi((*rest)[:n]) // no digits are 0
	*rest = (*rest)[n:]
	return i
}

func (s *spec) formatString(v str) str {
	if s.verb != 0 && s.verb != 's' || s.sign != 0 || s.alt || s.group != "" || s.align == '=' && s.fill.text != "0" {
		fail("invalid format specifier for a string")
	}
	align := s.align
	if align == 0 || align == '=' {
		align = '<'
	}
	v.html = false
	return v.truncated(s.precision).pad(s.width, align, s.fill, false)
}

func (s *spec) formatNumber(v value) str {
	digits := s.digits(v)
	if digits == "" { // %c
		i, _ := integer(v)
		return character(i).pad(s.width, max(s.align, '<'), s.fill, false)
	}
	sign := signOf(digits)
	digits = digits[len(sign):]
	if sign == "" && (s.sign == '+' || s.sign == ' ') {
		sign = string(s.sign)
	}
	prefix := ""
	if s.alt && strings.IndexByte("xXob", s.verb) >= 0 && s.verb != 0 {
		prefix = "0" + string(s.verb)
	}
	zeros := 0
	if s.align == '=' && s.fill.text == "0" {
		zeros = s.width - len(sign) - len(prefix)
	}
	digits = s.grouped(digits, zeros)
	align := s.align
	if align == '=' {
		fill := s.fill.times(int64(s.width - len(sign) - len(prefix) - len(digits)))
		return literal(sign + prefix).plus(fill).plus(literal(digits))
	}
	if align == 0 {
		align = '>'
	}
	return literal(sign+prefix+digits).pad(s.width, align, s.fill, false)
}

// digits returns the digits of a number, with a minus sign if it is negative, or nothing for c.
func (s *spec) digits(v value) string {
	i, isInt := integer(v)
	f, _ := float(v)
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	switch verb := s.verb; verb {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return formatFloat(f, verb, precision, s.alt)
	case '%':
		return formatFloat(f*100, 'f', precision, s.alt) + "%"
	case 0, 'n':
		if isInt {
			s.onlyInteger()
			return strconv.FormatInt(i, 10)
		}
		return s.ownFloat(f)
	case 'd', 'x', 'X', 'o', 'b', 'c':
		if !isInt {
			break
		}
		s.onlyInteger()
		if verb == 'c' {
			return ""
		}
		text := strconv.FormatInt(i, base(verb))
		if verb == 'X' {
			text = strings.ToUpper(text)
		}
		return text
	}
	fail("unknown format code '%c' for object of type '%s'", rune(s.verb), typeName(v))
	return ""
}

func (s *spec) onlyInteger() {
	if s.precision >= 0 {
		fail("precision not allowed in integer format specifier")
	}
}

// ownFloat formats a float without a type: as repr does, or with a precision as g does, but with
// a digit after the point.
func (s *spec) ownFloat(f float64) string {
	if s.precision < 0 {
		if s.verb == 'n' {
			return formatFloat(f, 'g', 6, s.alt)
		}
		return floatText(f)
	}
	text := formatFloat(f, 'g', s.precision, s.alt)
	if s.verb == 0 && !strings.ContainsAny(text, ".en") {
		if len(strings.TrimLeft(text, "-")) >= max(s.precision, 1) {
			return formatExponent(f, s.precision)
		}
		text += ".0"
	}
	return text
}

// formatExponent is the form of a float whose digits before the point take all of the precision.
func formatExponent(f float64, precision int) string {
	text := strconv.FormatFloat(f, 'e', max(precision-1, 0), 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + "e" + exponent
}

// grouped puts the separator between groups of digits before the point, and zeros in front of
// them up to a width.
func (s *spec) grouped(digits string, width int) string {
	if width > maxText {
		fail("a text of more than %d bytes", maxText)
	}
	hex := s.verb == 'x' || s.verb == 'X'
	n := 0
	for n < len(digits) && (digits[n] >= '0' && digits[n] <= '9' || hex) {
		n++
	}
	whole, rest := digits[:n], digits[n:]
	size := 3
	if strings.IndexByte("xXob", s.verb) >= 0 && s.verb != 0 {
		size = 4
	}
	if s.group == "" {
		return strings.Repeat("0", max(0, width-len(digits))) + digits
	}
	for len(whole)+(len(whole)-1)/size+len(rest) < width {
		whole = "0" + whole
	}
	var b strings.Builder
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%size == 0 {
			b.WriteString(s.group)
		}
		b.WriteRune(c)
	}
	return b.String() + rest
}
