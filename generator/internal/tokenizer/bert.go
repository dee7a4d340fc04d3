package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
)

// newBERTNormalizer reads BertNormalizer, which cleans a text as BERT's own tokenizer does.
func newBERTNormalizer(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type      string `json:"type"`
		Clean     bool   `json:"clean_text"`
		Chinese   bool   `json:"handle_chinese_chars"`
		Accents   *bool  `json:"strip_accents"` // null: as Lowercase
		Lowercase bool   `json:"lowercase"`
	}
	if err := decode(raw, &c); err != nil {
		return rewrite{}, fmt.Errorf("BertNormalizer: %w", err)
	}
	var n normalizer
	add := func(wanted bool, members ...rewrite) {
		if wanted {
			n = append(n, members...)
		}
	}
	add(c.Clean, rewrite{cleanText, 3, 1}) // a space of three bytes becomes one of one byte
	add(c.Chinese, rewrite{spaceIdeographs, 1, 2})
	add(c.Accents == nil && c.Lowercase || c.Accents != nil && *c.Accents,
		plainRewrites["NFD"], rewrite{stripNonspacing, 1, 1})
	add(c.Lowercase, plainRewrites["Lowercase"])
	return rewrite{n.normalize, n.shrinks(), 2 * 3 * 2}, nil // between ideographs, form D, lower case
}

// cleanText removes control characters and makes a space of each other white space.
func cleanText(p *pacer, s source) source {
	return eachRune(p, s, func(b *sourceBuilder, r rune) {
		switch {
		case isControlCharacter(r):
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	})
}

// spaceIdeographs puts spaces around Chinese characters.
func spaceIdeographs(p *pacer, s source) source {
	return eachRune(p, s, func(b *sourceBuilder, r rune) {
		if within(ideographs, r) {
			b.WriteString(" " + string(r) + " ")
			return
		}
		b.WriteRune(r)
	})
}

// ideographs are the Chinese characters of BertNormalizer.
var ideographs = [][2]rune{
	{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F},
	{0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
}

// stripNonspacing removes the characters of category Mn.
func stripNonspacing(p *pacer, s source) source {
	return eachRune(p, s, func(b *sourceBuilder, r rune) {
		if !isNonspacing(r) {
			b.WriteRune(r)
		}
	})
}

// stripAccents is StripAccents, which removes the characters of category M.
func stripAccents(p *pacer, s source) source {
	return eachRune(p, s, func(b *sourceBuilder, r rune) {
		if !isAccent(r) {
			b.WriteRune(r)
		}
	})
}
