package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// formatFloat formats a float as C's printf does, with at least so many digits of a kind. alt
// keeps the point and, for g, zeros at the end.
func formatFloat(f float64, verb byte, precision int, alt bool) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := floatText(f)
		if verb < 'a' {
			text = strings.ToUpper(text)
		}
		return text
	}
	if precision > 10_000 {
		fail("a precision of more than 10000 digits")
	}
	var text string
	switch verb | 0x20 {
	case 'g':
		text = formatGeneral(f, max(precision, 1), alt)
	default:
		text = strconv.FormatFloat(f, verb|0x20, precision, 64)
		if alt && precision == 0 {
			text = withPoint(text)
		}
	}
	if verb < 'a' {
		text = strings.ToUpper(text)
	}
	return text
}

// withPoint adds a point in front of the exponent, or at the end.
func withPoint(text string) string {
	if strings.Contains(text, ".") {
		return text
	}
	mantissa, exponent, has := strings.Cut(text, "e")
	if has {
		exponent = "e" + exponent
	}
	return mantissa + "." + exponent
}

// formatGeneral is %g: digits in all, with an exponent if it is below -4 or at least digits.
func formatGeneral(f float64, digits int, alt bool) string {
	text := strconv.FormatFloat(f, 'e', digits-1, 64)
	mantissa, tail, _ := strings.Cut(text, "e")
	exponent, _ := strconv.Atoi(tail) // strconv wrote it
	if exponent >= -4 && exponent < digits {
		mantissa, tail = strconv.FormatFloat(f, 'f', digits-1-exponent, 64), ""
	} else {
		tail = "e" + tail
	}
	if alt {
		return withPoint(mantissa) + tail
	}
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// round is Python's round(v, digits).
func round(v value, digits int64) value {
	if i, ok := integer(v); ok {
		if digits >= 0 {
			return i
		}
		if digits < -18 {
			return int64(0)
		}
		scale := power(10, -digits).(int64)
		rest := new(big.Rat).SetFrac64(i, scale)
		return multiply(roundHalfEven(rest).Int64(), scale)
	}
	f := v.(float64)
	if math.IsInf(f, 0) || math.IsNaN(f) || digits > 323 {
		return f
	}
	if digits >= 0 {
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
		return rounded
	}
	if digits < -308 {
		return math.Copysign(0, f)
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil)
	exact := new(big.Rat).SetFloat64(f)
	whole := roundHalfEven(exact.Quo(exact, new(big.Rat).SetInt(scale)))
	rounded, _ := new(big.Rat).SetInt(whole.Mul(whole, scale)).Float64()
	return math.Copysign(rounded, f)
}

// roundHalfEven rounds to an integer.
func roundHalfEven(x *big.Rat) *big.Int {
	double := new(big.Int).Lsh(x.Num(), 1)
	double.Add(double, x.Denom())
	bottom := new(big.Int).Lsh(x.Denom(), 1)
	whole, rest := new(big.Int).DivMod(double, bottom, new(big.Int)) // floor(x + 1/2)
	if rest.Sign() == 0 && whole.Bit(0) == 1 {
		whole.Sub(whole, big.NewInt(1))
	}
	return whole
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.Map(asciiDigit, strings.TrimFunc(s, isSpace))
	if !underscoresFine(s) || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

// parseInt is Python's int(s, base).
func parseInt(s string, base int64) (int64, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return 0, false
	}
	s = strings.Map(asciiDigit, strings.TrimFunc(s, isSpace))
	sign := signOf(s)
	digits := strings.ToLower(s[len(sign):])
	for prefix, b := range map[string]int64{"0x": 16, "0o": 8, "0b": 2} {
		if rest, ok := strings.CutPrefix(digits, prefix); ok && (base == b || base == 0) {
			digits, base = strings.TrimPrefix(rest, "_"), b
		}
	}
	if base == 0 {
		if len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0_") != "" {
			return 0, false
		}
		base = 10
	}
	if !underscoresFine(digits) {
		return 0, false
	}
	i, ok := new(big.Int).SetString(strings.ReplaceAll(digits, "_", ""), int(base))
	if !ok || signOf(digits) != "" {
		return 0, false
	}
	if sign == "-" {
		i.Neg(i)
	}
	if !i.IsInt64() {
		overflow()
	}
	return i.Int64(), true
}

// asciiDigit maps the decimal digits of each script to ASCII's. Unicode has them in rows of ten.
func asciiDigit(r rune) rune {
	if r < 0x80 || !unicode.IsDigit(r) {
		return r
	}
	first := r
	for unicode.IsDigit(first - 1) {
		first--
	}
	return '0' + (r-first)%10
}

// underscoresFine reports whether each underscore is between two digits.
func underscoresFine(s string) bool {
	isDigit := func(i int) bool {
		return i >= 0 && i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z')
	}
	for i := range len(s) {
		if s[i] == '_' && !(isDigit(i-1) && isDigit(i+1)) {
			return false
		}
	}
	return true
}

// toInt is Python's int(f). It fails for infinity and for more than 64 bits, and returns false
// for what is not a number.
func toInt(f float64) (int64, bool) {
	if math.IsNaN(f) {
		return 0, false
	}
	if math.Abs(f) >= 1<<63 {
		overflow()
	}
	return int64(f), true
}
