package protocol

import (
	"errors"
	"strings"
	"testing"
)

// nested returns n nested lists, the innermost empty.
func nested(n int) string { return strings.Repeat("\x91", n-1) + "\x90" }

// refused lists an input for each rule. Without the rule the input passes, so no other
// rule refuses it.
var refused = []struct {
	name string
	rule rule
	body string
}{
	{"a list at the top", ruleTopMap, "\x90"},
	{"a number at the top", ruleTopMap, "\x01"},
	{"a number as a key", ruleKeys, "\x81\x01\x02"},
	{"binary as a key", ruleKeys, "\x81\xc4\x01a\x02"},
	{"a number as a key inside", ruleKeys, string(pairs("x", "\x81\x01\x02"))},
	{"17 levels", ruleDepth, string(pairs("x", nested(16)))},
	{"two million levels", ruleDepth, string(pairs("x", nested(2_000_000)))},
	{"an extension", ruleExt, string(pairs("x", "\xd4\x01\x00"))},
	{"a timestamp", ruleExt, string(pairs("x", "\xd6\xff\x00\x00\x00\x00"))},
	{"an extension of 8-bit length", ruleExt, string(pairs("x", "\xc7\x02\x05ab"))},
	{"half of a character", ruleUTF8, string(pairs("x", "\xa2\xe2\x82"))},
	{"a surrogate in a key", ruleUTF8, string(pairs("\xed\xa0\x80", "\xc0"))},
	{"a second map", ruleTrailing, "\x80\x80"},
	{"one byte more", ruleTrailing, "\x80\xc1"},
}

func TestScanRules(t *testing.T) {
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			if err := Scan([]byte(c.body)); !errors.Is(err, ErrStructure) {
				t.Errorf("Scan = %v, want ErrStructure", err)
			}
			if err := scan([]byte(c.body), c.rule); err != nil {
				t.Errorf("without the rule: %v, want it to pass", err)
			}
		})
	}
}

// TestScanDeclaredLengths: a declared length is checked before anything of that length is
// read. Without the rule a list would run into the end of the body, and a string would be
// taken from bytes that don't exist.
func TestScanDeclaredLengths(t *testing.T) {
	for _, value := range []string{
		"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff",
		"\xdc\xff\xff", "\xde\xff\xff", "\xda\xff\xff", "\xc5\xff\xff", "\xd9\xff", "\xc4\xff",
		"\x9f", "\x8f", "\xbf", "\x92\x01", "\x82\xa1a", "\xa2a",
	} {
		err := Scan(pairs("x", value))
		if !errors.Is(err, ErrStructure) || !strings.Contains(err.Error(), "declared with") {
			t.Errorf("%x: %v", value, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("without the rule a string of 255 bytes was found in 1")
		}
	}()
	_ = scan(pairs("x", "\xd9\xffa"), ruleLength)
}

func TestScanTruncated(t *testing.T) {
	whole := pairs("a", text("text"), "b", "\xcd\x01\x02", "c", "\x92\x01\xcb\x00\x00\x00\x00\x00\x00\x00\x00")
	if err := Scan(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := Scan(whole[:n]); !errors.Is(err, ErrStructure) {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func TestScanNamesTheByte(t *testing.T) {
	err := Scan(pairs("x", "\xc1"))
	const want = "protocol: bad structure: the byte c1, which msgpack never uses at byte 3"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestScanNamesTheByteAfterNumbers: the position is right after numbers that the fast path
// skipped.
func TestScanNamesTheByteAfterNumbers(t *testing.T) {
	for list, want := range map[string]string{
		"\x93\x01\xcd\x01\x02\xc1": "the byte c1, which msgpack never uses at byte 8",
		"\x92\x01\xcd\x01":         "the bytes end inside an item at byte 5",
		"\x92\x01":                 "list of 2 declared with 1 bytes left",
		"\x92\x01\xcc\x80\x05":     "1 bytes follow the map at byte 7",
	} {
		if err := Scan(pairs("x", list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v, want %s", list, err, want)
		}
	}
}

// TestReadWholeIsReadItem: the fast path reads the same values as readItem, for every
// format and for items cut at any byte.
func TestReadWholeIsReadItem(t *testing.T) {
	for _, item := range formatItems {
		for n := range len(item) + 1 {
			b := []byte(item[:n])
			it, err := readItem(b)
			whole := err == nil && it.kind == kindUint && b[0] < 0xd0
			if num, size := readWhole(b); (size > 0) != whole || whole && (num != it.num || size != it.size) {
				t.Errorf("%x: %d of %d bytes, wants %+v, %v", b, num, size, it, err)
			}
		}
	}
}

func TestScanPasses(t *testing.T) {
	for name, body := range map[string][]byte{
		"no field":        pairs(),
		"16 levels":       pairs("x", nested(15)),
		"every format":    pairs("x", everyFormat()),
		"an empty string": pairs("", "\xa0"),
	} {
		if err := Scan(body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// formatItems has one item of each valid format.
var formatItems = []string{"\x00", "\xff", "\x80", "\x90", "\xa0", "\xc0", "\xc2", "\xc3",
	"\xc4\x01\xff", "\xc5\x00\x01\xff", "\xc6\x00\x00\x00\x01\xff",
	"\xca\x00\x00\x00\x00", "\xcb\x00\x00\x00\x00\x00\x00\x00\x00",
	"\xcc\x01", "\xcd\x00\x01", "\xce\x00\x00\x00\x01", "\xcf\x00\x00\x00\x00\x00\x00\x00\x01",
	"\xd0\x81", "\xd1\x80\x01", "\xd2\x80\x00\x00\x01", "\xd3\x80\x00\x00\x00\x00\x00\x00\x01",
	"\xd9\x01a", "\xda\x00\x01a", "\xdb\x00\x00\x00\x01a",
	"\xdc\x00\x01\x00", "\xdd\x00\x00\x00\x01\x00", "\xde\x00\x01\xa0\x00", "\xdf\x00\x00\x00\x01\xa0\x00"}

// everyFormat returns a list of them.
func everyFormat() string {
	return "\xdc\x00" + string(rune(len(formatItems))) + strings.Join(formatItems, "")
}

func TestScanAllocatesNothing(t *testing.T) {
	body := pairs("x", nested(15), "y", text(strings.Repeat("a", 5000)))
	if n := testing.AllocsPerRun(100, func() { _ = Scan(body) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkScan(b *testing.B) {
	body := pairs("x", "\xdd\x00\x0f\xff\xff"+strings.Repeat("\x01", 0xfffff))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_ = Scan(body)
	}
}
