package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// ownMap returns the normalizer Precompiled that encoders.py made.
func ownMap(t testing.TB) (raw json.RawMessage, data []byte) {
	t.Helper()
	var cases []vectorCase
	readJSON(t, "testdata/encoders_vectors.json", &cases)
	for _, c := range cases {
		var n struct {
			Map []byte `json:"precompiled_charsmap"`
		}
		if json.Unmarshal(c.Patch["normalizer"], &n) == nil && n.Map != nil {
			return c.Patch["normalizer"], n.Map
		}
	}
	t.Fatal("no map")
	return nil, nil
}

// charsmap returns a map with a trie of units.
func charsmap(results string, units ...uint32) []byte {
	data := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		data = binary.LittleEndian.AppendUint32(data, u)
	}
	return append(data, results...)
}

func TestRefusedMaps(t *testing.T) {
	for name, c := range map[string]struct {
		data  []byte
		names string
	}{
		"empty":            {nil, "0 bytes"},
		"no trie":          {charsmap("a\x00"), "a trie of 0 bytes"},
		"longer than data": {[]byte{8, 0, 0, 0, 1, 2, 3, 4}, "8 bytes in 4"},
		"half a unit":      {[]byte{3, 0, 0, 0, 1, 2, 3}, "3 bytes"},
		"not UTF-8":        {charsmap("a\xff\x00", 0), "UTF-8"},
	} {
		raw := `{"type":"Precompiled","precompiled_charsmap":"` + base64.StdEncoding.EncodeToString(c.data) + `"}`
		_, err := Load(patched(t, "unigram", patch("normalizer", raw)))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want an error naming %q", name, err, c.names)
		}
	}
	_, err := Load(patched(t, "unigram", patch("normalizer", `{"type":"Precompiled","precompiled_charsmap":"!"}`)))
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("not base64: %v", err)
	}
}

// A trie that points outside of itself or of the replacements changes nothing.
func TestMapsThatPointOutside(t *testing.T) {
	const leaf = 1 << 8
	child := func(offset uint32) uint32 { return offset << 10 }
	trie := func(a, value uint32) []uint32 { // of the string a alone
		units := make([]uint32, 128)
		units[0], units['a'^1], units['a'] = child(1), a, value
		return units
	}
	own, err := parsePrecompiled(charsmap("x\x00", trie('a'|leaf|child(1), 1<<31)...))
	if err != nil || rewritten(own.normalize, "aba") != "xbx" {
		t.Errorf("a trie that stays inside: %v", err)
	}
	for name, data := range map[string][]byte{
		"zero byte":          charsmap("x\x00", child(1), leaf|child(3), 1<<31),
		"child":              charsmap("x\x00", child(1<<20)),
		"leaf":               charsmap("x\x00", trie('a'|leaf|child(1<<20), 0)...),
		"replacement":        charsmap("x\x00", trie('a'|leaf|child(1), 1<<31|99)...),
		"within a character": charsmap("é\x00", trie('a'|leaf|child(1), 1<<31|1)...),
	} {
		m, err := parsePrecompiled(data)
		if err != nil {
			t.Fatal(err)
		}
		if got := rewritten(m.normalize, "a\x00"); got != "a\x00" {
			t.Errorf("%s: a and a zero byte become %q", name, got)
		}
	}
}

// FuzzPrecompiled checks that every map gives valid text of a bounded length.
func FuzzPrecompiled(f *testing.F) {
	_, own := ownMap(f)
	f.Add(own, "ﬁ e\u0301 a\u0308\u0301 ab abc \r\n㎞")
	f.Add(own[:len(own)/2], "x")
	f.Add(charsmap("x\x00", 1<<10, 0, 0, 0), "\x01a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := parsePrecompiled(data)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		got := rewritten(m.normalize, text)
		if !utf8.ValidString(got) || len(got) > m.longest*len(text) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
