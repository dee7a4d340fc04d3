package tokenizer

import (
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/marked"
)

// vectorCase is one entry of testdata/*_vectors.json, which the scripts beside them write.
type vectorCase struct {
	Tokenizer string
	Patch     map[string]json.RawMessage
	Encode    []encoding
	Rendered  []encoding // without the tokens of the post-processor
	Decode    []struct {
		IDs  []int32
		Text string
	}
}

type encoding struct {
	Text string
	IDs  []int32
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// patched returns a directory with a tokenizer.json of testdata, top-level fields replaced.
func patched(t testing.TB, name string, patch map[string]json.RawMessage) fs.FS {
	t.Helper()
	data, err := json.Marshal(patchedFields(t, name, patch))
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{fileName: {Data: data}}
}

func patchedFields(t testing.TB, name string, patch map[string]json.RawMessage) (file map[string]json.RawMessage) {
	t.Helper()
	readJSON(t, "testdata/"+name+".json", &file)
	for key, value := range patch {
		file[key] = value
	}
	return file
}

func load(t testing.TB, name string, patch map[string]json.RawMessage) *Tokenizer {
	t.Helper()
	tok, err := Load(patched(t, name, patch))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// decodeAll returns the text of ids, decoded as a stream.
func decodeAll(tok *Tokenizer, ids []int32) string {
	var b strings.Builder
	d := tok.NewDecoder(nil)
	for _, id := range ids {
		b.WriteString(d.Push(id))
	}
	return b.String() + d.Flush()
}

func TestVectors(t *testing.T) {
	for _, file := range []string{"gpt2", "llama3", "options", "families", "pipelines", "encoders", "gemma4"} {
		var cases []vectorCase
		readJSON(t, "testdata/"+file+"_vectors.json", &cases)
		for i, c := range cases {
			t.Run(file+"/"+strconv.Itoa(i), func(t *testing.T) {
				checkVectors(t, load(t, c.Tokenizer, c.Patch), c)
			})
		}
	}
}

func checkVectors(t *testing.T, tok *Tokenizer, c vectorCase) {
	if len(c.Encode) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range c.Encode {
		got, err := tok.Encode(v.Text)
		if err != nil || !slices.Equal(got, v.IDs) {
			t.Errorf("Encode(%q) = %v, %v, want %v", v.Text, got, err, v.IDs)
		}
	}
	for _, v := range c.Rendered {
		got, err := tok.EncodeMarked(marked.Trusted(v.Text), false)
		if err != nil || !slices.Equal(got, v.IDs) {
			t.Errorf("EncodeMarked(%q) = %v, %v, want %v", v.Text, got, err, v.IDs)
		}
	}
	for _, v := range c.Decode {
		if got := decodeAll(tok, v.IDs); got != v.Text {
			t.Errorf("decode(%v) = %q, want %q", v.IDs, got, v.Text)
		}
	}
}

// TestCharacterClasses compares the members of each class of a translated pattern with those of
// tokenizers, over all characters.
func TestCharacterClasses(t *testing.T) {
	var classes map[string]string
	readJSON(t, "testdata/classes.json", &classes)
	if len(classes) != len(since15)+1 {
		t.Errorf("%d classes recorded, want %d", len(classes), len(since15)+1)
	}
	for class, ranges := range classes {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			checkClass(t, class, parseRanges(t, ranges))
		})
	}
}

// checkClass finds the members of class by matching it in a text that has every character once.
func checkClass(t *testing.T, class string, want map[rune]bool) {
	p, err := newPattern(class)
	if err != nil {
		t.Fatal(err)
	}
	p.re.MatchTimeout = time.Hour
	all := make([]rune, 0, utf8.MaxRune)
	for r := range rune(utf8.MaxRune + 1) {
		if utf8.ValidRune(r) {
			all = append(all, r)
		}
	}
	got := 0
	for m, _ := p.re.FindRunesMatch(all); m != nil; m, _ = p.re.FindNextMatch(m) {
		if r := all[m.Index]; !want[r] {
			t.Fatalf("%U is in %s here and not in tokenizers", r, class)
		}
		got++
	}
	if got != len(want) {
		t.Errorf("%s has %d characters, want %d", class, got, len(want))
	}
}

func parseRanges(t *testing.T, s string) map[rune]bool {
	set := map[rune]bool{}
	for _, r := range strings.Fields(s) {
		from, to, ok := strings.Cut(r, "-")
		if !ok {
			to = from
		}
		low, err1 := strconv.ParseInt(from, 16, 32)
		high, err2 := strconv.ParseInt(to, 16, 32)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for c := low; c <= high; c++ {
			set[rune(c)] = true
		}
	}
	return set
}
