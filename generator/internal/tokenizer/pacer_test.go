package tokenizer

import (
	"strings"
	"testing"
	"time"
)

// Encode yields regularly on every kind of text. The time between yields is only logged, since
// a busy machine interrupts Encode too.
func TestEncodeYields(t *testing.T) {
	const size, most = 1 << 17, 8_000 // bytes of the text; most bytes between two yields
	for _, family := range []string{"gpt2", "llama3", "llama2", "qwen2"} {
		tok := load(t, family, nil)
		for name, part := range map[string]string{
			"words": "But, soft! what light ", "one word": "the", "one letter": "a", "spaces": " ", "lines": "\n",
			"emoji": "👩‍🚀", "accents": "e\u0301",
			"CJK": "漢字", "added tokens": "<|endoftext|>", "digits": "7", "marks": "\u0301\u0323",
		} {
			yields, longest, last := 0, time.Duration(0), time.Now()
			p := &pacer{sliceNS, func() {
				yields++
				now := time.Now()
				longest, last = max(longest, now.Sub(last)), now
			}}
			begun := time.Now()
			if _, err := tok.encode(p, source{text: strings.Repeat(part, size/len(part))}, tok.post); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %v, %d yields, at most %v apart", family, name, time.Since(begun), yields, longest)
			if yields < size/most {
				t.Errorf("%s, %s: %d yields", family, name, yields)
			}
		}
	}
}
