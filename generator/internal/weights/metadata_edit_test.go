package weights

import (
	"maps"
	"slices"
	"testing"
)

// Edits change the metadata that they are made of, and not the file's.
func TestEditedMetadata(t *testing.T) {
	c, err := openGGUF(goodGGUF())
	if err != nil {
		t.Fatal(err)
	}
	m := maps.Clone(c.Metadata())
	m.SetString("new.text", "é")
	m.SetUint("new.number", 1<<31)
	m.SetFloat("new.float", 0.5)
	m.SetBool("new.is", true)
	m.SetBool("new.not", false)
	text, _ := m.String("new.text")
	number, _ := m.Uint("new.number")
	float, _ := m.Float("new.float")
	is, _ := m.Bool("new.is")
	not, ok := m.Bool("new.not")
	if text != "é" || number != 1<<31 || float != 0.5 || !is || not || !ok {
		t.Error(text, number, float, is, not, ok)
	}
	m.Rename("u32", "u8") // which is there
	m.Rename("u16", "small")
	m.RenamePrefix("new.", "old.")
	if n, _ := m.Uint("small"); n != 513 || !m.Has("u32") || m.Has("u16") || m.Has("new.is") || !m.Has("old.is") {
		t.Error(m.Keys())
	}
	for _, n := range []int{5, 2, 1, 0} {
		m.Truncate("words", n)
		m.Truncate("numbers", n)
		m.Truncate("scores", n)
		m.Truncate("text", n)
		words, ok1 := m.Strings("words")
		numbers, ok2 := m.Ints("numbers")
		same := slices.Equal(words, []string{"a", "bc"}[:min(n, 2)]) && slices.Equal(numbers, []int64{3, -1}[:min(n, 2)])
		if !ok1 || !ok2 || !same {
			t.Error(n, words, numbers)
		}
	}
	if text, _ := m.String("text"); text != "hello" {
		t.Error("a string is no array:", text)
	}
	words, _ := c.Metadata().Strings("words")
	if len(words) != 2 || c.Metadata().Has("new.text") || !c.Metadata().Has("u16") {
		t.Error("the file's own metadata changed")
	}
}

// MXFP4 with Ollama's number is read of its first files of gpt-oss alone, and marked.
func TestOllamaMXFP4(t *testing.T) {
	arch := func(name string) []byte {
		pairs := [][]byte{ggufPair("general.architecture", kindString, ggufString(name)...)}
		return ggufFile(pairs, []described{{"m", []uint64{64, 2}, 4, 0}}, 4*17)
	}
	c, err := openGGUF(arch("gptoss"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.Tensor("m"); err != nil || m.DType != MXFP4 || !m.Adjacent || len(m.Data) != 4*17 {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := openGGUF(arch("gpt-oss")); err == nil {
		t.Error("a file of llama.cpp's may have it")
	}
	src := make([]byte, 2*17)
	for i := range src {
		src[i] = byte(7 * i)
	}
	dst := make([]byte, len(src))
	Apart(dst, src)
	for at := 0; at < len(src); at += 17 {
		for column := range 32 {
			want := src[at+1+column/2] >> (4 * (column % 2)) & 15
			if got := dst[at+1+column%16] >> (4 * (column / 16)) & 15; got != want || dst[at] != src[at] {
				t.Fatalf("column %d of the block at %d is %d, wants %d", column, at, got, want)
			}
		}
	}
}
