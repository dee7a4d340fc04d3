package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// precompiled is the normalizer Precompiled: SentencePiece's map from short strings to their
// replacements. It comes from the file and is not trusted.
type precompiled struct {
	units   []uint32 // a double-array trie of the strings; see prefix
	results string   // the replacements, each ended by a zero byte
	longest int      // bytes of the longest one, at least 1
}

// longestGrapheme is the number of bytes up to which a grapheme is looked up as a whole.
const longestGrapheme = 5

func newPrecompiled(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type string `json:"type"`
		Map  string `json:"precompiled_charsmap"` // base64
	}
	if err := decode(raw, &c); err != nil {
		return rewrite{}, fmt.Errorf("Precompiled: %w", err)
	}
	data, err := base64.StdEncoding.DecodeString(c.Map)
	if err != nil {
		return rewrite{}, fmt.Errorf("%w: Precompiled: %w", ErrInvalid, err)
	}
	m, err := parsePrecompiled(data)
	if err != nil {
		return rewrite{}, fmt.Errorf("%w: Precompiled: %w", ErrInvalid, err)
	}
	// The largest ratios are those of a grapheme that becomes one byte, and of a byte.
	return rewrite{m.normalize, longestGrapheme, m.longest}, nil
}

// parsePrecompiled reads the bytes of the trie, little-endian and after their number, and the
// replacements behind them.
func parsePrecompiled(data []byte) (*precompiled, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("a map of %d bytes", len(data))
	}
	size, data := binary.LittleEndian.Uint32(data), data[4:]
	if size == 0 || size%4 != 0 || uint64(size) > uint64(len(data)) {
		return nil, fmt.Errorf("a trie of %d bytes in %d", size, len(data))
	}
	m := &precompiled{make([]uint32, size/4), string(data[size:]), 1}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.ValidString(m.results) {
		return nil, fmt.Errorf("replacements that are not UTF-8")
	}
	for result := range strings.SplitSeq(m.results, "\x00") {
		m.longest = max(m.longest, len(result))
	}
	return m, nil
}

// normalize replaces graphemes, or else their characters. As in SentencePiece's port in
// tokenizers, the shortest string that a grapheme begins with stands for the whole of it.
func (m *precompiled) normalize(p *pacer, s source) source {
	var b sourceBuilder
	b.Grow(len(s.text))
	rest := graphemes.FromString(s.text)
	for rest.Next() {
		p.spent(50)
		from, to := rest.Start(), rest.End()
		if to-from <= longestGrapheme && m.replace(&b, s, from, to) {
			continue
		}
		for i, r := range s.text[from:to] {
			p.spent(10)
			start, end := from+i, from+i+utf8.RuneLen(r)
			if !m.replace(&b, s, start, end) {
				b.add(s, start, end)
			}
		}
	}
	return b.source()
}

// replace appends the replacement of the bytes of s from offset from up to to, if there is one.
func (m *precompiled) replace(b *sourceBuilder, s source, from, to int) bool {
	at, ok := m.prefix(s.text[from:to])
	if !ok || at >= len(m.results) || !utf8.RuneStart(m.results[at]) {
		return false
	}
	result, _, _ := strings.Cut(m.results[at:], "\x00")
	b.mark(s.data(from, to))
	b.WriteString(result)
	return true
}

// prefix returns the value of the shortest string in the trie that text begins with. The trie is
// Darts-clone's: a unit has a label in its low 8 bits and bit 31, which is set in leaves, the value
// of a leaf in the other 31, and else in bit 8 whether a leaf follows, and in the high 22 bits and
// bit 9 the offset to its children, which XOR adds.
func (m *precompiled) prefix(text string) (value int, ok bool) {
	at := childOffset(m.units[0])
	for i := range len(text) {
		c := uint32(text[i])
		at ^= c
		if c == 0 || uint64(at) >= uint64(len(m.units)) || m.units[at]&(1<<31|0xFF) != c {
			return 0, false
		}
		unit := m.units[at]
		at ^= childOffset(unit)
		if unit>>8&1 == 1 {
			if uint64(at) >= uint64(len(m.units)) {
				return 0, false
			}
			return int(m.units[at] &^ (1 << 31)), true
		}
	}
	return 0, false
}

func childOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
