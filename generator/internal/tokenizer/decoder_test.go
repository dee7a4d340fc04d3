package tokenizer

import (
	"testing"
	"unicode/utf8"
)

// TestHeld pushes a character byte by byte: its text comes with the last byte.
func TestHeld(t *testing.T) {
	tok := load(t, "gpt2", nil)
	d := tok.NewDecoder(nil)
	for i, b := range []byte("💩") {
		id, _ := tok.ID(string(charOf[b]))
		got, want, held := d.Push(id), "", i+1
		if i == 3 {
			want, held = "💩", 0
		}
		if got != want || d.Held() != held {
			t.Errorf("byte %d: %q with %d held, want %q with %d", i, got, d.Held(), want, held)
		}
	}
	id, _ := tok.ID(string(charOf[0xE2]))
	if d.Push(id) != "" || d.Flush() != "\uFFFD" || d.Held() != 0 || d.Flush() != "" {
		t.Error("Flush does not end the text")
	}
}

// TestSpaceAtTheBeginning checks that the decoder drops the space that the encoder puts before a
// text, and no other.
func TestSpaceAtTheBeginning(t *testing.T) {
	tok := load(t, "llama2", nil)
	begin, _ := tok.ID("<s>")
	ids, err := tok.Encode("the theatre")
	if err != nil || ids[0] != begin {
		t.Fatal(ids, err)
	}
	for name, c := range map[string]struct {
		after []int32
		want  string
	}{
		"nothing before":       {nil, "the theatre"},
		"special token before": {[]int32{begin, begin}, "the theatre"},
		"unknown id before":    {[]int32{-1, 1 << 20}, "the theatre"},
		"text before":          {ids, " the theatre"},
		"a space before":       {[]int32{begin, tok.ids["▁"]}, " the theatre"},
	} {
		t.Run(name, func(t *testing.T) {
			d, got := tok.NewDecoder(c.after), ""
			for _, id := range ids {
				got += d.Push(id)
			}
			if got += d.Flush(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestByteFallback streams characters that have no token.
func TestByteFallback(t *testing.T) {
	tok := load(t, "llama2", nil)
	push := func(d *Decoder, raw string) (text string) {
		for _, b := range []byte(raw) {
			text += d.Push(tok.ids[byteContent(b)])
		}
		return text
	}
	d := tok.NewDecoder(nil)
	if got := push(d, " \xf0\x9f\x92"); got != "" || d.Held() != 3 {
		t.Errorf("%q with %d bytes held", got, d.Held())
	}
	if got := push(d, "\xa9"); got != "💩" || d.Held() != 0 {
		t.Errorf("%q with %d bytes held", got, d.Held())
	}
	// tokenizers turns these bytes into three U+FFFD, the é included.
	if got := push(d, "é\xe2") + d.Push(tok.ids["▁the"]); got != "é\uFFFD the" {
		t.Errorf("%q", got)
	}
	if got := push(d, "\xc3") + d.Flush(); got != "\uFFFD" {
		t.Errorf("%q", got)
	}
}

// FuzzDecoder compares bytes decoded in a stream with those decoded at once, and valid text with
// itself.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{"", "\xf0\x9f\x92\xa9", "\xe2\x82\xe2\x82\xac\xff", "\xed\xa0\x80",
		"a\xf4\x90\x80\x80"} {
		f.Add([]byte(s))
	}
	tok := load(f, "gpt2", nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, rest := lossy(data)
		whole += flush(rest)
		d, streamed := tok.NewDecoder(nil), ""
		for _, b := range data {
			id, _ := tok.ID(string(charOf[b]))
			piece := d.Push(id)
			if streamed += piece; !utf8.ValidString(piece) || d.Held() > 3 {
				t.Fatalf("%q: piece %q, %d held", data, piece, d.Held())
			}
		}
		if streamed += d.Flush(); streamed != whole {
			t.Errorf("%q: streamed %q, whole %q", data, streamed, whole)
		}
		if utf8.Valid(data) && whole != string(data) {
			t.Errorf("%q became %q", data, whole)
		}
	})
}
