package model_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/convert"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/tiny"
)

// inDir is a directory with model.gguf.
type inDir struct{ fs.FS }

func (inDir) GGUF() string { return "model.gguf" }

// converted converts a checkpoint and reads the file.
func converted(t *testing.T, c model.Config, from model.Tensors, to convert.Target) (model.Config, model.Tensors) {
	t.Helper()
	dir := t.TempDir()
	report, err := convert.Run(t.Context(), convert.Job{Config: c, Tensors: from, Target: to,
		Out: filepath.Join(dir, "model.gguf")})
	if err != nil {
		t.Fatal(err)
	}
	checkSource(t, c, from, report)
	file, err := weights.Open(inDir{os.DirFS(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	got, tensors, err := model.ParseGGUF(file.Metadata(), file)
	if err != nil {
		t.Fatal(err)
	}
	return got, tensors
}

// checkSource checks that a report has the bytes of the source's matrices, of experts too.
func checkSource(t *testing.T, c model.Config, from model.Tensors, report convert.Report) {
	t.Helper()
	source := map[model.TensorKind]int64{}
	for _, s := range c.Tensors() {
		own, err := from.Tensor(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		source[s.Kind] += int64(own.DType.Bytes(int(s.Elements())))
	}
	for _, class := range report.Classes {
		if class.Kind != model.NormTensor && class.Source != source[class.Kind] { // among norms are divisors of RoPE
			t.Errorf("%s of %s have %d bytes, wants %d", class.Kind, c.Name, class.Source, source[class.Kind])
		}
	}
}

// A converted model gives logits near the source's. The weights lose 0.5 % or 8 %, random models make about four times
// that of it, and rows in another order would make 100 %. In all families, with permuted rows, fused tensors and Llama
// 3's RoPE, and the embedded model, whose columns are whole blocks of 256.
func TestConvertedModels(t *testing.T) {
	for _, name := range families {
		if name == "qwen2-window" { // GGUF does not say which layers have the window
			continue
		}
		c, w := checkpoint(t, name)
		if c.Quantisation.Method != "" { // experts of MXFP4 are no floats
			continue
		}
		if c.Inner%32 != 0 || c.Latent != nil && c.Latent.Rank%32 != 0 { // columns are no whole blocks
			continue
		}
		if c.NormsFromOne { // of Gemma it does not say query_pre_attn_scalar
			c.AttentionScale = 0
		}
		checkConverted(t, name, c, w, loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab)[2].Tokens)
	}
	c, err := model.ParseConfig(readFile(t, "config.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.Open(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	checkConverted(t, "embedded", c, w, []int32{0, 300, 1000, 77, 20, 512})
}

func checkConverted(t *testing.T, name string, c model.Config, w model.Tensors, tokens []int32) {
	t.Helper()
	want := run(t, c, w, tokens)[0]
	for to, most := range map[convert.Target]float64{convert.Q8_0: 0.05, convert.Q4_0: 0.5, convert.Q4_K_M: 0.35} {
		if c.Experts != nil { // rows that differ a little may choose other experts
			most *= 2
		}
		got, tensors := converted(t, c, w, to)
		e := relativeError(run(t, got, tensors, tokens)[0], want)
		t.Logf("%s to %s: %.4f", name, to, e)
		most *= max(1, float64(c.Layers)/4) // errors of layers add up
		if !(e > 0 && e < most) {
			t.Errorf("%s to %s: logits differ by %.3f, wants at most %.3f", name, to, e, most)
		}
	}
}

// A Granite 4 model gives the same logits as one of Granite 3 with matrices of its own for gates and up projections. With
// columns of whole blocks it is converted, with RoPE or without.
func TestGranite4AsGranite3(t *testing.T) {
	c, w := checkpoint(t, "granite-4")
	tokens := loadGolden(t, "testdata/granite-4", 5, c.Vocab)[2].Tokens
	plain, split := model.Plain(c, w)
	if got, want := run(t, plain, split, tokens), run(t, c, w, tokens); !reflect.DeepEqual(got, want) {
		t.Error("the logits differ")
	}
	const fused = "model.layers.0.shared_mlp.input_linear.weight"
	own, err := w.Tensor(fused)
	if err != nil {
		t.Fatal(err)
	}
	codes, rows := own, own
	codes.Conversion, rows.Shape = &weights.Conversion{}, []int{own.Shape[0] - 2, own.Shape[1]}
	for other, want := range map[*weights.Tensor]error{&own: nil, &codes: model.ErrUnsupported, &rows: model.ErrTensor} {
		plain, split := model.Plain(c, changed{w, map[string]weights.Tensor{fused: *other}})
		if err := plain.CheckTensors(split); !errors.Is(err, want) {
			t.Errorf("with gates of %v: %v, wants %v", other.Shape, err, want)
		}
	}
	raw, err := os.ReadFile("testdata/granite-4/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, rope := range []string{"rope", "nope"} {
		r := strings.NewReplacer(`"shared_intermediate_size": 48`, `"shared_intermediate_size": 64`,
			`"position_embedding_type": "rope"`, `"position_embedding_type": "`+rope+`"`)
		c, err := model.ParseConfig([]byte(r.Replace(string(raw))), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkConverted(t, "granite-4 with "+rope, c, newRandom(c, func(string) weights.DType { return weights.Q8_0 }, weights.BF16), tokens)
	}
}
