package jinja

import (
	"math"
	"math/big"
	"math/bits"
)

// unary is Python's -v or +v.
func unary(op string, v value) value {
	checkDefined(v)
	if i, ok := integer(v); ok {
		if op == "-" {
			if i == math.MinInt64 {
				overflow()
			}
			return -i
		}
		return i
	}
	f, ok := v.(float64)
	if !ok {
		fail("bad operand type for unary %s: '%s'", op, typeName(v))
	}
	if op == "-" {
		return -f
	}
	return f
}

func overflow() { fail("an integer of more than 64 bits") }

// binary is Python's left op right.
func binary(r *run, op string, left, right value) value {
	if s, ok := left.(str); ok && op == "%" {
		return percent(r, s, right)
	}
	checkDefined(left, right)
	a, leftInt := integer(left)
	b, rightInt := integer(right)
	if leftInt && rightInt {
		return integers(op, a, b)
	}
	x, leftNumber := float(left)
	y, rightNumber := float(right)
	if leftNumber && rightNumber {
		return floats(op, x, y)
	}
	switch op {
	case "+":
		if v, ok := concatenate(left, right); ok {
			return v
		}
	case "*":
		if leftInt {
			left, right, b, rightInt = right, left, a, true
		}
		if v, ok := repeat(left, b); ok && rightInt {
			return v
		}
	}
	if _, ok := left.(str); ok && op == "+" {
		fail("can only concatenate str (not \"%s\") to str", typeName(right))
	}
	fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(left), typeName(right))
	return nil
}

// float returns the value of a number.
func float(v value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := integer(v)
	return float64(i), ok
}

func concatenate(left, right value) (value, bool) {
	switch l := left.(type) {
	case str:
		if r, ok := right.(str); ok {
			return l.plus(r), true
		}
	case *list:
		if r, ok := right.(*list); ok {
			return &list{joined(l.items, r.items)}, true
		}
	case *tuple:
		if r, ok := right.(*tuple); ok {
			return &tuple{items: joined(l.items, r.items)}, true
		}
	}
	return nil, false
}

func joined(a, b []value) []value {
	checkItems(len(a) + len(b))
	return append(append(make([]value, 0, len(a)+len(b)), a...), b...)
}

func repeat(v value, n int64) (value, bool) {
	switch v := v.(type) {
	case str:
		return v.times(n), true
	case *list:
		return &list{repeated(v.items, n)}, true
	case *tuple:
		return &tuple{items: repeated(v.items, n)}, true
	}
	return nil, false
}

func repeated(items []value, n int64) (all []value) {
	if n <= 0 || len(items) == 0 {
		return nil
	}
	checkItems(int(min(n, maxItems+1)))
	checkItems(len(items) * int(n))
	all = make([]value, 0, len(items)*int(n))
	for range n {
		all = append(all, items...)
	}
	return all
}

// integers is arithmetic of integers. A result of more than 64 bits is an error.
func integers(op string, a, b int64) value {
	switch op {
	case "+":
		sum := a + b
		if (sum > a) != (b > 0) {
			overflow()
		}
		return sum
	case "-":
		difference := a - b
		if (difference < a) != (b > 0) {
			overflow()
		}
		return difference
	case "*":
		return multiply(a, b)
	case "**":
		return power(a, b)
	}
	if b == 0 {
		fail("division by zero")
	}
	switch op {
	case "/":
		return divide(a, b)
	case "%":
		return a - floorDivide(a, b)*b
	}
	return floorDivide(a, b)
}

func multiply(a, b int64) int64 {
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	negative := (a < 0) != (b < 0)
	if high != 0 || low > math.MaxInt64 && !(negative && low == 1<<63) {
		overflow()
	}
	if negative {
		return -int64(low)
	}
	return int64(low)
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

func power(a, b int64) value {
	if b < 0 {
		return floats("**", float64(a), float64(b))
	}
	if a == 0 || a == 1 || a == -1 {
		switch {
		case b == 0:
			return int64(1)
		case a == -1 && b%2 == 0:
			return int64(1)
		}
		return a
	}
	result := int64(1)
	for range b { // at most 63 times before it overflows
		result = multiply(result, a)
	}
	return result
}

// divide returns the quotient, rounded once.
func divide(a, b int64) float64 {
	const exact = 1 << 53
	if magnitude(a) <= exact && magnitude(b) <= exact {
		return float64(a) / float64(b)
	}
	f, _ := big.NewRat(a, b).Float64()
	return f
}

func floorDivide(a, b int64) int64 {
	if a == math.MinInt64 && b == -1 {
		overflow()
	}
	quotient := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		quotient--
	}
	return quotient
}

func floats(op string, x, y float64) value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return floatPower(x, y)
	}
	if y == 0 {
		fail("float division by zero")
	}
	if op == "/" {
		return x / y
	}
	quotient, rest := floatDivmod(x, y)
	if op == "%" {
		return rest
	}
	return quotient
}

// floatDivmod is Python's float_divmod.
func floatDivmod(x, y float64) (quotient, rest float64) {
	rest = math.Mod(x, y)
	quotient = (x - rest) / y
	if rest != 0 {
		if (y < 0) != (rest < 0) {
			rest += y
			quotient--
		}
	} else {
		rest = math.Copysign(0, y)
	}
	if quotient == 0 {
		return math.Copysign(0, x/y), rest
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole, rest
}

// exactPower rounds the power once for the exponents that templates use; math.Pow may round
// several times.
func exactPower(x, y float64) float64 {
	switch {
	case y == 0.5 && x > 0 && !math.IsInf(x, 0):
		return math.Sqrt(x)
	case y != math.Trunc(y) || math.Abs(y) > 1024 || x == 0 || math.IsInf(x, 0) || math.IsNaN(x):
		return math.Pow(x, y)
	}
	const bits = 200
	power := new(big.Float).SetPrec(bits).SetInt64(1)
	for range int(math.Abs(y)) {
		power.Mul(power, new(big.Float).SetFloat64(x))
	}
	if y < 0 {
		power.Quo(new(big.Float).SetPrec(bits).SetInt64(1), power)
	}
	f, _ := power.Float64()
	return f
}

func floatPower(x, y float64) value {
	if x == 0 && y < 0 {
		fail("0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail("the power is a complex number")
	}
	f := exactPower(x, y)
	if math.IsInf(f, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail("the power is too large")
	}
	return f
}
