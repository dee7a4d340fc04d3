package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// golden is one prompt with the results of transformers in float32.
type golden struct {
	Text    string    `json:"text"`
	Tokens  []int32   `json:"tokens"`
	Greedy  []int32   `json:"greedy"`
	Margins []float32 `json:"margins"` // largest logit minus the second, at each greedy token
	logits  []float32
}

// loadGolden reads golden.json and logits.f32 of a folder. They hold count prompts.
func loadGolden(t *testing.T, dir string, count, vocab int) (all []golden) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	logits, err := os.ReadFile(filepath.Join(dir, "logits.f32"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != count || len(logits) != count*vocab*4 {
		t.Fatalf("%d prompts and %d bytes of logits, wants %d of each", len(all), len(logits), count)
	}
	for i := range all {
		for id := range vocab {
			bits := binary.LittleEndian.Uint32(logits[4*(i*vocab+id):])
			all[i].logits = append(all[i].logits, math.Float32frombits(bits))
		}
	}
	return all
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := tiny.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// embedded loads the embedded model onto a host device.
func embedded(t testing.TB) (*device.Host, *model.Model) { return embeddedAs(t, asTheyAre) }

// embeddedAs loads the embedded model with its weights as the function makes them.
func embeddedAs(t testing.TB, as func(model.Tensors) model.Tensors) (*device.Host, *model.Model) {
	t.Helper()
	c, err := model.ParseConfig(readFile(t, "config.json"), readFile(t, "generation_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := weights.Open(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	return onHost(t, c, as(checkpoint))
}

// runner runs steps of one sequence.
type runner struct {
	t      *testing.T
	m      *model.Model
	dev    device.Device
	stream device.Stream
	memory *model.StepMemory
	next   uint64
}

func newRunner(t *testing.T, dev device.Device, m *model.Model, chunk int, kv kernels.DType) *runner {
	t.Helper()
	return newRunnerIn(t, dev, m, model.Geometry{MaxRows: chunk, Slots: 1, MaxSamples: 1, Context: m.Config.Context,
		PageTokens: 16, Pages: m.Config.Context / 16, RingSlots: 2, KVType: kv})
}

// newRunnerIn returns a runner in step memory of that geometry.
func newRunnerIn(t *testing.T, dev device.Device, m *model.Model, g model.Geometry) *runner {
	t.Helper()
	memory, err := m.NewStepMemory(dev, g)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, m: m, dev: dev, stream: stream, memory: memory}
	r.begin(1)
	return r
}

// begin gives the slot to a new sequence.
func (r *runner) begin(generation int) {
	init, pages := kernels.Step{Inits: []kernels.Init{{Generation: int32(generation)}}}, r.m.Config.Context/16
	for i := range pages {
		init.Pages = append(init.Pages, kernels.PageEntry{Index: int32(i), Page: int32(pages - i)})
		if len(init.Pages) == kernels.MaxMoves {
			r.step(init, model.Shape{Rows: 1})
			init = kernels.Step{}
		}
	}
	r.step(init, model.Shape{Rows: 1})
}

// free gives back the runner's stream and memory.
func (r *runner) free() {
	r.t.Helper()
	if err := errors.Join(r.stream.Destroy(), r.memory.Free(r.dev)); err != nil {
		r.t.Fatal(err)
	}
}

// logits returns the logits of the last step's sample.
func (r *runner) logits() []float32 {
	r.t.Helper()
	b := r.memory.Logits()
	raw := make([]byte, b.Bytes())
	if err := r.dev.Read(raw, b); err != nil {
		r.t.Fatal(err)
	}
	out := make([]float32, r.m.Config.Vocab)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func (r *runner) step(s kernels.Step, sh model.Shape) {
	r.t.Helper()
	s.Number = r.next
	r.next++
	if err := r.memory.Write(&s); err != nil {
		r.t.Fatal(err)
	}
	if err := errors.Join(r.m.Forward(r.stream, r.memory, sh), r.stream.Synchronize()); err != nil {
		r.t.Fatal(err)
	}
}

// prompt prefills tokens in chunks, samples after the last one and returns the record.
func (r *runner) prompt(tokens []int32, chunk int) kernels.Record {
	for at := 0; at < len(tokens); at += chunk {
		var s kernels.Step
		for i, token := range tokens[at:min(at+chunk, len(tokens))] {
			s.Rows = append(s.Rows, kernels.Row{Position: int32(at + i), Token: token})
		}
		if at+chunk >= len(tokens) {
			s.Samples = []int32{int32(len(s.Rows) - 1)}
		}
		r.step(s, model.Shape{Rows: len(s.Rows), Class: kernels.Prefill, Samples: len(s.Samples)})
	}
	return r.result()
}

func (r *runner) decode() kernels.Record {
	row := kernels.Row{Position: kernels.FromDevice, Token: kernels.FromDevice}
	r.step(kernels.Step{Rows: []kernels.Row{row}, Samples: []int32{0}}, model.Shape{Rows: 1, Samples: 1})
	return r.result()
}

func (r *runner) result() (out kernels.Record) {
	r.memory.Record(r.next-1, 0, &out)
	return out
}

// The embedded model is compared with transformers in float32 on the same values: in float32 logits of
// the last position are within 1e-4 relative, 64 greedy tokens are equal, and chunks of any
// size give the same bits.
func TestEmbeddedModelEqualsTransformers(t *testing.T) {
	h, m := embeddedAs(t, widened)
	for _, g := range loadGolden(t, "../../tiny/golden", 12, m.Config.Vocab) {
		equalsGolden(t, h, m, g, 128, 7)
	}
}

// So is it with its weights in bfloat16, as it is served.
func TestEmbeddedModelInBFloat16(t *testing.T) {
	if testing.Short() { // for the race detector, which is slow
		t.Skip("workers are those of TestEmbeddedModelEqualsTransformers")
	}
	h, m := embedded(t)
	equalsInBFloat16(t, h, m, "../../tiny/golden", 12, kernels.F32)
}

// equalsGolden compares one prompt, prefilled in chunks of several sizes, and returns the
// relative error of its logits.
func equalsGolden(t *testing.T, dev device.Device, m *model.Model, g golden, chunks ...int) float64 {
	t.Helper()
	var first []float32
	for _, chunk := range chunks {
		r := newRunner(t, dev, m, 128, kernels.F32)
		got := []int32{r.prompt(g.Tokens, chunk).Token}
		logits := r.logits()
		if e := relativeError(logits, g.logits); !(e < 1e-4) {
			t.Errorf("%d tokens, chunk %d: logits differ by %.1e relative, wants under 1e-4",
				len(g.Tokens), chunk, e)
		}
		if first == nil {
			first = logits
		}
		for id := range logits {
			if logits[id] != first[id] {
				t.Fatalf("%d tokens: logit %d is %v in chunks of %d and %v in chunks of %d",
					len(g.Tokens), id, logits[id], chunk, first[id], chunks[0])
			}
		}
		for len(got) < len(g.Greedy) {
			got = append(got, r.decode().Token)
		}
		for n := range g.Greedy {
			if got[n] != g.Greedy[n] {
				t.Fatalf("%d tokens, chunk %d: greedy token %d is %d, transformers has %d",
					len(g.Tokens), chunk, n, got[n], g.Greedy[n])
			}
		}
		r.free()
	}
	return relativeError(first, g.logits)
}

// relativeError returns ‖got − want‖ / ‖want‖. It is NaN if any element is.
func relativeError(got, want []float32) float64 {
	var diff, size float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		diff += d * d
		size += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(diff / size)
}

// BenchmarkDecode measures a decode step of the embedded model at position 200.
func BenchmarkDecode(b *testing.B) {
	for _, rows := range []int{1, 8} {
		b.Run(strconv.Itoa(rows), func(b *testing.B) {
			h, m := embedded(b)
			memory, err := m.NewStepMemory(h, model.Geometry{MaxRows: rows, Slots: rows, MaxSamples: rows, Context: 256,
				PageTokens: 16, Pages: 16 * rows, RingSlots: 2})
			if err != nil {
				b.Fatal(err)
			}
			stream, _ := h.NewStream()
			defer stream.Destroy()
			s := kernels.Step{}
			for i := range rows {
				s.Rows = append(s.Rows, kernels.Row{Slot: int32(i), Position: 200, Token: int32(i)})
				s.Samples = append(s.Samples, int32(i))
			}
			shape := model.Shape{Rows: rows, Samples: rows}
			for b.Loop() {
				err := errors.Join(memory.Write(&s), m.Forward(stream, memory, shape), stream.Synchronize())
				if err != nil {
					b.Fatal(err)
				}
				s.Number++
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
