package model_test

import (
	"encoding/binary"
	"math"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// Products over weights in bfloat16 round activations to bfloat16. So a comparison with float32 that wants more than 3
// digits takes the values of the weights in float32, where nothing is rounded.

// inFloat32 hands out tensors in bfloat16 with the same values in float32.
type inFloat32 struct{ model.Tensors }

func (w inFloat32) Tensor(name string) (weights.Tensor, error) {
	t, err := w.Tensors.Tensor(name)
	if err != nil || t.DType != weights.BF16 || t.Conversion != nil {
		return t, err
	}
	values := make([]byte, 2*len(t.Data))
	for i := range len(t.Data) / 2 {
		binary.LittleEndian.PutUint16(values[4*i+2:], binary.LittleEndian.Uint16(t.Data[2*i:]))
	}
	t.DType, t.Data = weights.F32, values
	return t, nil
}

func widened(w model.Tensors) model.Tensors { return inFloat32{w} }

// checkpointInFloat32 opens the checkpoint in testdata/name in float32. Gemma's embedding is multiplied by a number that
// is rounded to the type of the weights: it stays that of bfloat16.
func checkpointInFloat32(t testing.TB, name string) (model.Config, model.Tensors) {
	t.Helper()
	_, rounded := checkpoint(t, name)
	embedding, err := rounded.Tensor("model.embed_tokens.weight")
	if err != nil {
		t.Fatal(err)
	}
	c, w := checkpointAs(t, name, widened)
	if c.EmbeddingRoot && embedding.DType == weights.BF16 {
		root := vec.NearestBF16(float32(math.Sqrt(float64(c.Hidden))))
		c.EmbeddingRoot, c.EmbeddingScale = false, vec.BF16(root)
	}
	return c, w
}

func asTheyAre(w model.Tensors) model.Tensors { return w }

// equalsInBFloat16 compares a model with count golden prompts in dir, of transformers in float32: logits after a prompt
// are within 2e-2 relative, and chunks of any size give the same bits. After the tokens of transformers the next token is
// the same if its margin is more than three times the largest error of a logit. Where two experts nearly tie, a row may
// choose another one than in float32: that may change the logits of two of five prompts, and one in twenty of the tokens.
func equalsInBFloat16(t *testing.T, dev device.Device, m *model.Model, dir string, count int, kv kernels.DType) {
	t.Helper()
	f := forced{t: t, d: dev, m: m, kv: kv, mayTie: m.Config.Experts != nil}
	for _, g := range loadGolden(t, dir, count, m.Config.Vocab) {
		f.compare(g)
	}
	t.Logf("logits differ by %.1e relative and %.3f at most; %d of %d tokens had a margin and agree",
		f.relative, f.most, f.compared, f.tokens)
	if f.tied > 2 || 20*f.missed > f.compared {
		t.Errorf("the logits of %d prompts and %d of %d tokens differ", f.tied, f.missed, f.compared)
	}
	if f.compared*2 < f.tokens {
		t.Errorf("only %d of %d tokens were compared", f.compared, f.tokens)
	}
}

// forced compares a model with golden values, token by token (teacher forcing).
type forced struct {
	t                *testing.T
	d                device.Device
	kv               kernels.DType
	m                *model.Model
	relative, most   float64 // errors of logits
	compared, tokens int
	mayTie           bool // rows may choose other experts
	tied, missed     int  // prompts and tokens that differ, if they may
}

func (f *forced) compare(g golden) {
	f.t.Helper()
	var first []float32
	for _, chunk := range []int{128, 7, 1} {
		r := newRunner(f.t, f.d, f.m, 128, f.kv)
		got := r.prompt(g.Tokens, chunk).Token
		logits := r.logits()
		if first == nil {
			first = logits
			f.error(len(g.Tokens), logits, g.logits)
		}
		for id := range logits {
			if math.Float32bits(logits[id]) != math.Float32bits(first[id]) {
				f.t.Fatalf("%d tokens: logit %d is %v in chunks of %d and %v in chunks of 128",
					len(g.Tokens), id, logits[id], chunk, first[id])
			}
		}
		for n, want := range g.Greedy {
			f.tokens++
			if float64(g.Margins[n]) > 3*f.most {
				f.compared++
				switch {
				case got != want && f.mayTie:
					f.missed++
				case got != want:
					f.t.Fatalf("%d tokens, chunk %d: token %d is %d, wants %d with a margin of %v; logits differ by %v",
						len(g.Tokens), chunk, n, got, want, g.Margins[n], f.most)
				}
			}
			row := kernels.Row{Position: int32(len(g.Tokens) + n), Token: want}
			r.step(kernels.Step{Rows: []kernels.Row{row}, Samples: []int32{0}}, model.Shape{Rows: 1, Samples: 1})
			got = r.result().Token
		}
		r.free()
	}
}

// error records the distance of logits from those of transformers.
func (f *forced) error(tokens int, got, want []float32) {
	f.t.Helper()
	e := relativeError(got, want)
	if !(e < 2e-2) && f.mayTie {
		f.tied++
		return
	}
	if !(e < 2e-2) {
		f.t.Fatalf("%d tokens: logits differ by %.1e relative, wants under 2e-2", tokens, e)
	}
	f.relative = max(f.relative, e)
	for i, w := range want {
		f.most = max(f.most, math.Abs(float64(got[i])-float64(w)))
	}
}
