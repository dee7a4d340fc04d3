//go:build cuda

package model_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// withinReference bounds ‖difference‖ / ‖reference‖ of each row of logits. The reference is
// transformers in float32; here weights and activations are bfloat16.
const withinReference = 2e-2

// gpuRunner runs one sequence of a checkpoint on the first GPU.
type gpuRunner struct {
	t      *testing.T
	dev    *gpu.Device
	m      *model.Model
	stream device.Stream
	memory *model.StepMemory
	steps  uint64
	length int32
}

const gpuContext, gpuChunk, gpuBatch = 1024, 512, 16

func onGPU(t *testing.T, files fs.FS) *gpuRunner {
	t.Helper()
	r := &gpuRunner{t: t}
	config, err := fs.ReadFile(files, "config.json")
	r.must(err)
	c, err := model.ParseConfig(config, nil)
	r.must(err)
	checkpoint, err := weights.Open(files)
	r.must(err)
	r.dev, err = gpu.New(0, cuda.Kernels)
	r.must(err)
	r.m, err = model.Load(r.dev, c, checkpoint, func(float64) {})
	r.must(err)
	r.memory, err = r.m.NewStepMemory(r.dev, model.Geometry{MaxRows: gpuChunk, Slots: gpuBatch, MaxSamples: gpuBatch,
		Context: gpuContext, PageTokens: 16, Pages: gpuContext / 16, RingSlots: 2, KVType: kernels.BF16})
	r.must(err)
	r.stream, err = r.dev.NewStream()
	r.must(err)
	t.Cleanup(func() { r.must(errors.Join(r.stream.Destroy(), r.dev.Close(), checkpoint.Close())) })
	return r
}

func (r *gpuRunner) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// begin prepares the slot for a new sequence, with the pages in reverse order.
func (r *gpuRunner) begin() {
	s := kernels.Step{Inits: []kernels.Init{{Generation: int32(r.steps) + 1}}}
	for i := range int32(gpuContext / 16) {
		s.Pages = append(s.Pages, kernels.PageEntry{Index: i, Page: gpuContext/16 - i})
	}
	r.length = 0
	r.step(s, model.Shape{Rows: 1})
}

func (r *gpuRunner) step(s kernels.Step, sh model.Shape) {
	r.t.Helper()
	s.Number = r.steps
	r.steps++
	r.must(r.memory.Write(&s))
	r.must(errors.Join(r.m.Forward(r.stream, r.memory, sh), r.stream.Synchronize()))
}

// logits runs one step of the class over tokens and returns the logits of the last one.
func (r *gpuRunner) logits(class kernels.Class, tokens ...int32) []float32 {
	r.t.Helper()
	s := kernels.Step{Samples: []int32{int32(len(tokens) - 1)}}
	for _, token := range tokens {
		s.Rows = append(s.Rows, kernels.Row{Position: r.length, Token: token})
		r.length++
	}
	r.step(s, model.Shape{Class: class, Rows: len(tokens), Samples: min(len(tokens), gpuBatch)}) // as the engine does
	out := make([]float32, r.m.Config.Vocab)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), 4*len(out))
	r.must(r.dev.Read(raw, r.memory.Logits().Slice(0, int64(len(raw)))))
	return out
}

// The embedded model on a GPU has the logits of transformers after each golden prompt.
func TestGPUEmbeddedModelEqualsTransformers(t *testing.T) {
	r, most := onGPU(t, tiny.Files), 0.0
	for i, g := range loadGolden(t, "../../tiny/golden", 12, r.m.Config.Vocab) {
		r.begin()
		e := relativeError(r.logits(kernels.Prefill, g.Tokens...), g.logits)
		if !(e <= withinReference) {
			t.Errorf("prompt %d (%d tokens): logits are off by %.1e relative, wants at most %.0e",
				i, len(g.Tokens), e, withinReference)
		}
		most = max(most, e)
	}
	t.Logf("logits are off by %.1e relative at most", most)
}

// reference holds the results of bench/tools/reference.py for a checkpoint.
type reference struct {
	Model   string `json:"model"` // directory
	Prompts []struct {
		Tokens []int32 `json:"tokens"`
		Forced []int32 `json:"forced"` // decoded after them, one a step
	} `json:"prompts"`
	rows [][]float32 // logits of each prompt's last token and of each forced one
}

func loadReference(t *testing.T, dir string) (f reference) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	logits, err := os.ReadFile(filepath.Join(dir, "logits.f32"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, p := range f.Prompts {
		rows += 1 + len(p.Forced)
	}
	vocab := len(logits) / 4 / rows
	all := unsafe.Slice((*float32)(unsafe.Pointer(&logits[0])), len(logits)/4)
	for i := range rows {
		f.rows = append(f.rows, all[i*vocab:(i+1)*vocab])
	}
	return f
}

// A checkpoint on a GPU is compared with transformers in float32 on the same GPU, after
// prompts and in decode steps with given tokens: the logits of each row, and the most
// probable token if the reference's margin exceeds the row's error.
func TestGPUEqualsReference(t *testing.T) {
	dirs := filepath.SplitList(os.Getenv("REEL_REFERENCE"))
	if len(dirs) == 0 {
		t.Skip("this test wants REEL_REFERENCE: folders that bench/tools/reference.py made " +
			"on a machine with a GPU, torch and transformers")
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			f := loadReference(t, dir)
			r := onGPU(t, os.DirFS(f.Model))
			if len(f.rows) == 0 || len(f.rows[0]) != r.m.Config.Vocab {
				t.Fatalf("%d rows of references", len(f.rows))
			}
			c := comparison{t: t}
			for _, p := range f.Prompts {
				r.begin()
				c.row(r.logits(kernels.Prefill, p.Tokens...), f.rows[c.rows])
				for _, token := range p.Forced {
					c.row(r.logits(kernels.Decode, token), f.rows[c.rows])
				}
			}
			t.Logf("%d rows: off by %.1e relative at most, %.1e together; %d of %d tokens agree, others are too close",
				c.rows, c.most, math.Sqrt(c.diff/c.size), c.agree, c.rows)
		})
	}
}

// comparison accumulates the differences of rows of logits.
type comparison struct {
	t           *testing.T
	rows, agree int
	most        float64 // of the rows' relative errors
	diff, size  float64 // squares
}

func (c *comparison) row(got, want []float32) {
	c.t.Helper()
	e := relativeError(got, want)
	if !(e <= withinReference) {
		c.t.Errorf("row %d: logits are off by %.1e relative, wants at most %.0e", c.rows, e, withinReference)
	}
	first, second, off := 0, -1, 0.0
	for i, w := range want {
		off = max(off, math.Abs(float64(got[i]-w)))
		c.diff += float64(got[i]-w) * float64(got[i]-w)
		c.size += float64(w) * float64(w)
		switch {
		case w > want[first]:
			first, second = i, first
		case i != first && (second < 0 || w > want[second]):
			second = i
		}
	}
	same := true
	for _, v := range got {
		same = same && !(v > got[first])
	}
	if margin := float64(want[first] - want[second]); same {
		c.agree++
	} else if margin > 2*off {
		c.t.Errorf("row %d: token %d is not the most probable, though its margin is %.2e and the error %.2e",
			c.rows, first, margin, off)
	}
	c.most = max(c.most, e)
	c.rows++
}
