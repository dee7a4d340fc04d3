package tiny

import (
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
)

const maxBytes = 14_000_000 // bound on the size of the directory in a clone and in the binary

type modelConfig struct {
	Hidden  int  `json:"hidden_size"`
	FFN     int  `json:"intermediate_size"`
	Layers  int  `json:"num_hidden_layers"`
	Heads   int  `json:"num_attention_heads"`
	KVHeads int  `json:"num_key_value_heads"`
	HeadDim int  `json:"head_dim"`
	Vocab   int  `json:"vocab_size"`
	Context int  `json:"max_position_embeddings"`
	Tied    bool `json:"tie_word_embeddings"`
}

// parameters returns the number of weights of a Llama with a tied head.
func (c modelConfig) parameters() int {
	attention := c.Hidden * c.HeadDim * (2*c.Heads + 2*c.KVHeads)
	layer := attention + 3*c.Hidden*c.FFN + 2*c.Hidden
	return c.Vocab*c.Hidden + c.Layers*layer + c.Hidden
}

type tensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"` // bytes after the header
}

type goldenEntry struct {
	Text    string
	Tokens  []int
	Greedy  []int
	Margins []float64
}

func TestDirectoryIsSmall(t *testing.T) {
	total := int64(0)
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && !strings.HasSuffix(path, ".pyc") {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if total >= maxBytes {
		t.Fatalf("the directory holds %d bytes, want under %d", total, maxBytes)
	}
}

func TestWeightsFitTheConfig(t *testing.T) {
	config := readConfig(t)
	if !config.Tied || config.Context < 512 {
		t.Fatalf("config: tied %v, context %d", config.Tied, config.Context)
	}
	count, end := 0, 0
	tensors, dataBytes := readTensors(t)
	for name, info := range tensors {
		if info.DType != "BF16" {
			t.Errorf("%s is %s, want BF16", name, info.DType)
		}
		count += size(info.Shape)
		end = max(end, info.Offsets[1])
	}
	if count != config.parameters() {
		t.Errorf("%d weights, the config says %d", count, config.parameters())
	}
	if count < 3_000_000 || count > 6_000_000 {
		t.Errorf("%d weights, want 3 to 6 million", count)
	}
	if end != dataBytes || end != 2*count {
		t.Errorf("tensors end at byte %d of %d, %d weights", end, dataBytes, count)
	}
}

func TestGoldenValuesAgree(t *testing.T) {
	vocab := readConfig(t).Vocab
	var entries []goldenEntry
	decode(t, read(t, os.DirFS("golden"), "golden.json"), &entries)
	logits := read(t, os.DirFS("golden"), "logits.f32")
	if len(entries) != 12 || len(logits) != 12*4*vocab {
		t.Fatalf("%d prompts, %d bytes of logits", len(entries), len(logits))
	}
	for i, e := range entries {
		if len(e.Greedy) != 64 || len(e.Margins) != 64 || len(e.Tokens) < 1 || len(e.Tokens) > 400 {
			t.Errorf("prompt %d: %d tokens, %d greedy, %d margins", i, len(e.Tokens), len(e.Greedy), len(e.Margins))
		}
		if best := argmax(logits[i*4*vocab : (i+1)*4*vocab]); best != e.Greedy[0] {
			t.Errorf("prompt %d: the logits' argmax is %d, the first greedy token %d", i, best, e.Greedy[0])
		}
	}
}

func readConfig(t *testing.T) modelConfig {
	t.Helper()
	var config modelConfig
	decode(t, read(t, Files, "config.json"), &config)
	return config
}

// readTensors returns the header of model.safetensors and the number of bytes after it.
func readTensors(t *testing.T) (map[string]tensor, int) {
	t.Helper()
	data := read(t, Files, "model.safetensors")
	header := int(binary.LittleEndian.Uint64(data))
	var tensors map[string]tensor
	raw := map[string]json.RawMessage{}
	decode(t, data[8:8+header], &raw)
	delete(raw, "__metadata__")
	rest, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	decode(t, rest, &tensors)
	return tensors, len(data) - 8 - header
}

func read(t *testing.T, files fs.FS, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func size(shape []int) int {
	product := 1
	for _, n := range shape {
		product *= n
	}
	return product
}

// argmax returns the index of the largest of little-endian float32 values.
func argmax(data []byte) int {
	best, top := -1, math.Inf(-1)
	for i := range len(data) / 4 {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		if v > top {
			best, top = i, v
		}
	}
	return best
}
