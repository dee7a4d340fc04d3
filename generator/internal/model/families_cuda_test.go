//go:build cuda

package model_test

import (
	"math"
	"path/filepath"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	fatbin "reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// Every family on a GPU is compared with transformers in float32 on the same weights: logits
// after a prompt are within 2e-2 relative, and chunks of any size give the same bits. After
// the tokens of transformers the next token is the same if its margin exceeds three times
// the largest error of a logit. A row whose experts nearly tie may choose others than in float32: that may change the
// logits of two of five prompts, and one in twenty of the tokens.
func TestGPUFamiliesEqualTransformers(t *testing.T) {
	d := openGPU(t)
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpoint(t, name)
			m, err := model.Load(d, c, w, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			f := forced{t: t, d: d, m: m, mayTie: c.Experts != nil}
			for _, g := range loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab) {
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
			if err := m.Free(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// EAGLE-3 heads on a GPU, in bfloat16, draft what the plain implementation in float32 drafts, but for near ties.
func TestGPUEagleEqualsReference(t *testing.T) {
	d := openGPU(t)
	for _, name := range eagleHeads {
		t.Run(name, func(t *testing.T) { equalsEagle(t, d, name, kernels.BF16, 0.85) })
	}
}

// A model for embeddings on a GPU is compared with sentence-transformers in float32 on the same weights: vectors are
// within 2e-2 relative, and chunks of any size give the same bits.
func TestGPUEmbeddingsEqualSentenceTransformers(t *testing.T) {
	d := openGPU(t)
	c, w := openEmbedder(t)
	m, err := model.Load(d, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("vectors differ by %.1e relative at most", compareEmbeddings(t, d, m, kernels.BF16, 2e-2))
	if err := m.Free(d); err != nil {
		t.Error(err)
	}
}

// openGPU opens the first GPU until the test ends.
func openGPU(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := gpu.New(0, fatbin.Fatbin)
	if err != nil {
		t.Fatalf("this test wants an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// forced compares a model on a GPU with golden values, token by token (teacher forcing).
type forced struct {
	t                *testing.T
	d                device.Device
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
		r := newRunner(f.t, f.d, f.m, 128, kernels.BF16)
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

// Models in each quantised format on a GPU are compared with transformers in float32 on the values of their weights.
func TestGPUFormatsEqualTransformers(t *testing.T) { equalTransformers(t, openGPU(t), kernels.BF16) }
