//go:build linux

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// embedderDir has a small checkpoint in the layout of Qwen3-Embedding, with what sentence-transformers computes for it.
const embedderDir = "../internal/model/testdata/qwen3-embedding"

// embeddedText is a text, the name of the prompt before it, the tokens of both, and the final norm of the last one's
// hidden state and the same with length 1, as sentence-transformers computes them.
type embeddedText struct {
	Text, Prompt string
	Tokens       []int32
	vector, unit []float32
}

func embeddedTexts(t *testing.T) (all []embeddedText) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(embedderDir, "golden.json"))
	must(t, err)
	must(t, json.Unmarshal(raw, &all))
	values, err := os.ReadFile(filepath.Join(embedderDir, "vectors.f32"))
	must(t, err)
	width := len(values) / 4 / len(all) / 2
	floats := make([]float32, len(values)/4)
	if _, err := binary.Decode(values, binary.LittleEndian, floats); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		both := floats[2*i*width:]
		all[i].vector, all[i].unit = both[:width], both[width:2*width]
	}
	return all
}

// apart returns ‖a − b‖ / ‖b‖.
func apart(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var diff, size float64
	for i := range b {
		diff += math.Pow(float64(a[i])-float64(b[i]), 2)
		size += math.Pow(float64(b[i]), 2)
	}
	return math.Sqrt(diff / size)
}

// numbers reads a vector that reel embed printed.
func numbers(t *testing.T, text string) (v []float32) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		f, err := strconv.ParseFloat(word, 32)
		must(t, err)
		v = append(v, float32(f))
	}
	return v
}

// rounded bounds the relative distance of vectors from those in float32: products with weights in bfloat16 round
// activations. Package model compares them in float32, too.
const rounded = 2e-2

// The real programs give the vectors of sentence-transformers: text, prompt, end token, length.
func TestEmbeddingsEqualSentenceTransformers(t *testing.T) {
	g := serve(t, "--model", embedderDir)
	c := g.client()
	for _, want := range embeddedTexts(t) {
		flags := []string{"embed", want.Text}
		if want.Prompt != "" {
			flags = append(flags, "--prompt-name", want.Prompt)
		}
		if e := apart(numbers(t, g.reel(flags...).run(0)), want.unit); !(e < rounded) {
			t.Errorf("%q: differs by %.1e", want.Text, e)
		}
		raw, err := c.Embed(t.Context(), client.EmbedRequest{Tokens: want.Tokens, Normalize: new(false)})
		must(t, err)
		if e := apart(raw.Vector, want.vector); !(e < rounded) || raw.Usage.PromptTokens != len(want.Tokens) {
			t.Errorf("%q: without a length, from %d tokens, differs by %.1e", want.Text, raw.Usage.PromptTokens, e)
		}
		part, err := c.Embed(t.Context(), client.EmbedRequest{Tokens: want.Tokens, Dimensions: new(32)})
		must(t, err)
		if e := apart(part.Vector, unitOf(want.vector[:32])); !(e < rounded) {
			t.Errorf("%q: its first 32 elements differ by %.1e", want.Text, e)
		}
	}
	var refused *client.Error
	for _, err := range c.Generate(t.Context(), client.Request{Prompt: "a"}) {
		if refused, _ = err.(*client.Error); refused == nil || refused.Code != protocol.CodeNoGeneration {
			t.Errorf("generate: %v", err)
		}
	}
	if text := g.reel("status").run(0); !strings.Contains(text, "embeddings   64 dimensions") {
		t.Errorf("reel status says nothing of embeddings: %s", text)
	}
}

// unitOf returns v with length 1.
func unitOf(v []float32) (unit []float32) {
	var sum float64
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	for _, f := range v {
		unit = append(unit, float32(float64(f)/math.Sqrt(sum)))
	}
	return unit
}

// A vector has the same bits alone and op by op, and beside 63 others of three users' names with cached prefixes.
func TestEmbeddingsBesideOthers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(rand.Uint64(), 27))
	random := func(n int) (tokens []int32) {
		for range n {
			tokens = append(tokens, int32(r.IntN(300)))
		}
		return tokens
	}
	texts, prefix := [][]int32{random(512)}, random(200) // one fills the context
	for range scaled(96, 12) {
		texts = append(texts, slices.Concat(prefix[:r.IntN(200)], random(1+r.IntN(20))))
	}
	alone := serve(t, "--model", embedderDir, "--max-graphs", "0", "--cache-scope", "off", "--max-batch", "1").client()
	var want [][]float32
	for _, text := range texts {
		v, err := alone.Embed(t.Context(), client.EmbedRequest{Tokens: text})
		must(t, err)
		want = append(want, v.Vector)
	}
	busy := serve(t, "--model", embedderDir, "--max-batch", "8").client()
	found := 0
	for range 2 {
		got := make([]*client.Embedding, len(texts))
		var group sync.WaitGroup
		for from := range 64 {
			group.Go(func() {
				for i := from; i < len(texts); i += 64 {
					v, err := busy.Embed(t.Context(), client.EmbedRequest{Tokens: texts[i], User: fmt.Sprint(i % 3)})
					if err != nil {
						t.Error(err)
					}
					got[i] = v
				}
			})
		}
		group.Wait()
		if t.Failed() {
			return
		}
		for i, text := range texts {
			if found += got[i].Usage.CachedTokens; !slices.Equal(got[i].Vector, want[i]) {
				t.Fatalf("%d tokens, %d of them cached: other bits", len(text), got[i].Usage.CachedTokens)
			}
		}
	}
	if found == 0 {
		t.Error("no text found cached pages")
	}
}

// Many lines are embedded at once, and come in their order; a text that is too long is refused, or cut.
func TestEmbeddingsOfLines(t *testing.T) {
	t.Parallel()
	g := serve(t, "--model", embedderDir)
	var lines []string
	for i := range 150 {
		lines = append(lines, strings.Repeat("fox ", 1+i%90)+fmt.Sprint(i))
	}
	printed := input(g.reel("embed", "--lines"), strings.Join(lines, "\n")).run(0)
	all := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
	if len(all) != len(lines) {
		t.Fatalf("%d vectors of %d lines", len(all), len(lines))
	}
	for _, i := range []int{0, 1, 77, 149} {
		if want := g.reel("embed", lines[i]).run(0); all[i]+"\n" != want {
			t.Errorf("line %d has the vector of another", i)
		}
	}
	long := strings.Repeat("fox and the ", 400)
	p := input(g.reel("embed", "--lines"), "short\n"+long)
	p.run(64)
	if text := p.stderr.String(); !strings.Contains(text, "prompt_too_long: line 2: the text has ") {
		t.Errorf("a long line: %q", text)
	}
	cut := numbers(t, input(g.reel("embed", "--truncate", "--lines"), long).run(0))
	tokens := g.reel("tokenize", long).run(0)
	ids := strings.Split(strings.TrimSpace(tokens), ",")
	end := ids[len(ids)-1]
	want := numbers(t, g.reel("embed", "--tokens", strings.Join(append(ids[:511:511], end), ",")).run(0))
	if len(ids) < 600 || !slices.Equal(cut, want) {
		t.Errorf("a text of %d tokens is not cut before its end token", len(ids))
	}
}

// A GGUF file that convert has written is of the same kind, adds the same end token, and its vectors are close.
func TestEmbeddingsOfGGUF(t *testing.T) {
	file := filepath.Join(tempDir(t), "embedder.gguf")
	p := prepare(t, "reel-generator", "convert", embedderDir, file, "--to", "q8_0").start()
	p.wantExit(0)
	if text := p.stderr.String(); !strings.Contains(text, "GGUF has no place for the prompts") {
		t.Errorf("convert says nothing of the prompts: %s", text)
	}
	c := serve(t, "--model", file).client()
	if e := c.Embeddings(); e == nil || !e.Normalized || e.Least != 32 || len(e.Prompts) > 0 {
		t.Errorf("embeddings %+v", e)
	}
	for _, want := range embeddedTexts(t) {
		if want.Prompt == "query" {
			continue
		}
		v, err := c.Embed(t.Context(), client.EmbedRequest{Text: want.Text})
		must(t, err)
		if e := apart(v.Vector, want.unit); !(e < 0.05) || v.Usage.PromptTokens != len(want.Tokens) {
			t.Errorf("%q: %d tokens, differs by %.1e", want.Text, v.Usage.PromptTokens, e)
		}
	}
}

// /v1/embeddings gives the same vectors, as numbers and in base64.
func TestEmbeddingsOverHTTP(t *testing.T) {
	url := serve(t, "--model", embedderDir).gateway()
	want := embeddedTexts(t)
	post := func(path, body string, into any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+keyA)
		reply, err := http.DefaultClient.Do(r)
		must(t, err)
		defer reply.Body.Close()
		if must(t, json.NewDecoder(reply.Body).Decode(into)); reply.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d", path, reply.StatusCode)
		}
	}
	var openAI struct {
		Data []struct{ Embedding []float32 }
	}
	two := fmt.Sprintf("[%q,%q]", want[0].Text, want[1].Text)
	post("/v1/embeddings", `{"model":"qwen3-embedding","input":`+two+`}`, &openAI)
	var encoded struct{ Data []struct{ Embedding []byte } }
	post("/v1/embeddings", `{"model":"qwen3-embedding","encoding_format":"base64","input":[`+
		string(mustJSON(t, want[1].Tokens))+`]}`, &encoded)
	same := make([]float32, len(want[1].unit))
	if _, err := binary.Decode(encoded.Data[0].Embedding, binary.LittleEndian, same); err != nil {
		t.Fatal(err)
	}
	var ollama struct{ Embeddings [][]float32 }
	post("/api/embed", fmt.Sprintf(`{"model":"qwen3-embedding","input":%q}`, want[1].Text), &ollama)
	if !slices.Equal(openAI.Data[1].Embedding, same) || !slices.Equal(ollama.Embeddings[0], same) {
		t.Error("numbers, base64 and Ollama's form are not the same vector")
	}
	for i, d := range openAI.Data {
		if e := apart(d.Embedding, want[i].unit); !(e < rounded) {
			t.Errorf("%q: differs by %.1e", want[i].Text, e)
		}
	}
}

// Checkpoints whose pooling this build does not compute are refused by name, and so are requests to another model.
func TestEmbeddingsAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "mean")
	must(t, os.CopyFS(dir, os.DirFS(embedderDir)))
	file := filepath.Join(dir, "1_Pooling", "config.json")
	must(t, os.WriteFile(file, []byte(`{"pooling_mode_mean_tokens": true}`), 0o600))
	socket := filepath.Join(tempDir(t), "s")
	p := prepare(t, "reel-generator", "--model", dir, "--device", "host", "--socket", socket).start()
	p.wantExit(78)
	if text := p.stderr.String(); !strings.Contains(text, "1_Pooling/config.json: pooling [mean]") {
		t.Errorf("%s", text)
	}
	g := serve(t)
	q := g.reel("embed", "a")
	q.run(64)
	if text := q.stderr.String(); !strings.Contains(text, "no_embeddings: reel-tiny is not meant for embeddings") {
		t.Errorf("%s", text)
	}
}
