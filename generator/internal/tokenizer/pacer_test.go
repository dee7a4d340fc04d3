package tokenizer

import (
	"strings"
	"testing"
	"time"
)

// Encode lets others run again and again, whatever the text. How long it works in
// between is logged, not held: a busy machine interrupts it too.
func TestEncodeRests(t *testing.T) {
	const size, most = 1 << 17, 8_000 // bytes of the text, and between two rests at most
	for _, family := range []string{"gpt2", "llama3", "llama2", "qwen2"} {
		tok := load(t, family, nil)
		for name, part := range map[string]string{
			"words": "But, soft! what light ", "one word": "the", "one letter": "a", "spaces": " ", "lines": "\n",
			"emoji": "👩‍🚀", "accents": "e\u0301",
			"CJK": "漢字", "added tokens": "<|endoftext|>", "digits": "7", "marks": "\u0301\u0323",
		} {
			rests, longest, last := 0, time.Duration(0), time.Now()
			p := &pacer{sliceNS, func() {
				rests++
				now := time.Now()
				longest, last = max(longest, now.Sub(last)), now
			}}
			begun := time.Now()
			if _, err := tok.encode(p, strings.Repeat(part, size/len(part)), tok.post); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %v, %d rests, at most %v apart", family, name, time.Since(begun), rests, longest)
			if rests < size/most {
				t.Errorf("%s, %s: %d rests", family, name, rests)
			}
		}
	}
}
