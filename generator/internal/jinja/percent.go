package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// percentRun formats values with Python's operator %.
type percentRun struct {
	run  *run
	out  builder
	args []value
	next int   // of args
	dict value // for %(name)s, or missing
}

// conversion is a conversion specifier, such as %-5.2f.
type conversion struct {
	key              value // of %(key)s, or missing
	minus, plus      bool
	space, alt, zero bool
	width            int
	precision        int // -1: none
	verb             byte
}

// percent is Python's format % v.
func percent(r *run, format str, v value) value {
	format.onlyPlain("%")
	p := percentRun{run: r, args: []value{v}, dict: missing}
	switch v := v.(type) {
	case *tuple:
		p.args = v.items
	case *dict, *list, *rangeObject, *undefined:
		p.dict = v // Python takes each object with items for one; the undefined one has them, too
	}
	for rest := format; rest.text != ""; {
		i := strings.IndexByte(rest.text, '%')
		if i < 0 {
			p.out.add(rest)
			break
		}
		p.out.add(rest.slice(0, i))
		rest = p.convert(rest.from(i + 1))
	}
	if p.next < len(p.args) && isMissing(p.dict) {
		fail("not all arguments converted during string formatting")
	}
	return p.out.str()
}

// convert formats one value. It returns the format after its specifier.
func (p *percentRun) convert(rest str) str {
	c := conversion{key: missing, precision: -1}
	rest = p.parseKey(&c, rest)
	rest = c.parseFlags(rest)
	rest, c.width = p.number(rest)
	if c.width < 0 {
		c.minus, c.width = true, -c.width
	}
	if strings.HasPrefix(rest.text, ".") {
		rest, c.precision = p.number(rest.from(1))
		c.precision = max(c.precision, 0)
	}
	if rest.text != "" && strings.IndexByte("hlL", rest.text[0]) >= 0 {
		rest = rest.from(1)
	}
	if rest.text == "" {
		fail("incomplete format")
	}
	c.verb = rest.text[0]
	if c.verb == '%' {
		p.out.add(rest.slice(0, 1))
		return rest.from(1)
	}
	v := c.key
	if isMissing(v) {
		v = p.argument()
	}
	p.write(&c, v)
	return rest.from(1)
}

func (p *percentRun) parseKey(c *conversion, rest str) str {
	if !strings.HasPrefix(rest.text, "(") {
		return rest
	}
	if isMissing(p.dict) {
		fail("format requires a mapping")
	}
	open := 0
	for i := range len(rest.text) {
		switch rest.text[i] {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				v, ok := item(p.dict, rest.slice(1, i))
				if !ok {
					fail("no value named '%.100s' to format", rest.text[1:i])
				}
				c.key = v
				return rest.from(i + 1)
			}
		}
	}
	fail("incomplete format key")
	return rest
}

func (c *conversion) parseFlags(rest str) str {
	for i := range len(rest.text) {
		switch rest.text[i] {
		case '-':
			c.minus = true
		case '+':
			c.plus = true
		case ' ':
			c.space = true
		case '#':
			c.alt = true
		case '0':
			c.zero = true
		default:
			return rest.from(i)
		}
	}
	return rest.from(len(rest.text))
}

// number parses a width or a precision, or takes it from the arguments.
func (p *percentRun) number(rest str) (str, int) {
	if strings.HasPrefix(rest.text, "*") {
		n := numberOf(p.argument(), "* in a format")
		return rest.from(1), int(min(max(n, -maxText), maxText))
	}
	i := 0
	for i < len(rest.text) && rest.text[i] >= '0' && rest.text[i] <= '9' {
		i++
	}
	if i > 8 {
		fail("the width or precision %.20s of a format is too large", rest.text[:i])
	}
	n, _ := strconv.Atoi(rest.text[:i]) // no digits are 0
	return rest.from(i), n
}

func (p *percentRun) argument() value {
	if p.next == len(p.args) {
		fail("not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1]
}

// write formats a value.
func (p *percentRun) write(c *conversion, v value) {
	switch c.verb {
	case 's':
		p.pad(c, p.run.text(v).truncated(c.precision))
	case 'r':
		p.pad(c, repr(v).truncated(c.precision))
	case 'a':
		p.pad(c, repr(v).ascii().truncated(c.precision))
	case 'c':
		p.pad(c, character(v))
	case 'd', 'i', 'u', 'x', 'X', 'o':
		p.padNumber(c, c.integer(v))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		checkDefined(v)
		f, ok := float(v)
		if !ok {
			fail("must be real number, not %s", typeName(v))
		}
		precision := c.precision
		if precision < 0 {
			precision = 6
		}
		p.padNumber(c, formatFloat(f, c.verb, precision, c.alt))
	default:
		fail("unsupported format character '%c'", rune(c.verb))
	}
}

// truncated returns at most n characters, or all if n is negative.
func (s str) truncated(n int) str {
	if n < 0 {
		return s
	}
	return s.slice(0, s.offset(n))
}

// ascii replaces characters beyond ASCII by escape sequences.
func (s str) ascii() str {
	return s.mapped(func(r rune) string {
		switch {
		case r < utf8.RuneSelf:
			return string(r)
		case r < 0x100:
			return fmt.Sprintf(`\x%02x`, r)
		case r < 0x10000:
			return fmt.Sprintf(`\u%04x`, r)
		}
		return fmt.Sprintf(`\U%08x`, r)
	})
}

// character is %c. The character of a number is data, since the number may be.
func character(v value) str {
	if s, ok := v.(str); ok && s.length() == 1 {
		return s
	}
	i, ok := integer(v)
	if !ok {
		fail("%%c requires int or char")
	}
	if i < 0 || i > utf8.MaxRune || !utf8.ValidRune(rune(i)) {
		fail("%%c: %d is no character", i)
	}
	return str{text: string(rune(i)), data: true}
}

// integer returns the digits of an integer, with a minus sign if it is negative.
func (c *conversion) integer(v value) string {
	checkDefined(v)
	i, ok := integer(v)
	text := ""
	if f, isFloat := v.(float64); isFloat && strings.IndexByte("diu", c.verb) >= 0 {
		if math.IsInf(f, 0) || math.IsNaN(f) {
			fail("cannot convert float %s to integer", floatText(f))
		}
		whole, _ := big.NewFloat(f).Int(nil)
		text, ok = whole.String(), true
	} else {
		text = strconv.FormatInt(i, base(c.verb))
	}
	if !ok {
		fail("%%%c format: a number is required, not %s", rune(c.verb), typeName(v))
	}
	sign := signOf(text)
	digits := text[len(sign):]
	digits = strings.Repeat("0", max(0, c.precision-len(digits))) + digits
	if c.alt && base(c.verb) != 10 {
		digits = "0" + string(c.verb|0x20) + digits
	}
	if c.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	return sign + digits
}

// base returns the base of the digits of a conversion.
func base(verb byte) int {
	switch verb {
	case 'x', 'X':
		return 16
	case 'o':
		return 8
	case 'b':
		return 2
	}
	return 10
}

func (p *percentRun) pad(c *conversion, s str) {
	align := byte('>')
	if c.minus {
		align = '<'
	}
	p.out.add(s.pad(c.width, align, literal(" "), false))
}

// padNumber pads a number, with zeros between its sign and its digits if there is a flag 0.
func (p *percentRun) padNumber(c *conversion, digits string) {
	sign := signOf(digits)
	digits = digits[len(sign):]
	switch {
	case sign != "":
	case c.plus:
		sign = "+"
	case c.space:
		sign = " "
	}
	if c.zero && !c.minus && !strings.ContainsAny(digits, "in") {
		prefix := ""
		if c.alt && len(digits) > 1 && strings.ContainsRune("xXo", rune(digits[1])) {
			prefix, digits = digits[:2], digits[2:]
		}
		zeros := max(0, c.width-len(sign)-len(prefix)-len(digits))
		p.out.check(zeros)
		digits = prefix + strings.Repeat("0", zeros) + digits
	}
	p.pad(c, literal(sign+digits))
}
