package model_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// equalTransformers compares models in each quantised format with transformers in float32 on the exact values of their
// weights: the error of logits, of prompts and of tokens after them, is at most 1.1 times that of bfloat16 weights. With
// a fault in the weights it is not.
func equalTransformers(t *testing.T, dev device.Device, kv kernels.DType) {
	python := os.Getenv("REEL_TRANSFORMERS")
	if python == "" {
		t.Skip("this test wants REEL_TRANSFORMERS: a python3 with torch and transformers")
	}
	j := newJudge(t, dev, kv, python)
	t.Logf("%-42s | %9s %9s %15s | %9s %9s %15s", "errors of logits", "prompts", "bfloat16", "ratio", "decoded", "bfloat16", "ratio")
	for _, name := range formatNames() {
		prompts, decoded := j.ratios(name, j.models[name])
		if err := errors.Join(prompts.verdict(), decoded.verdict()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range faults {
		models, err := newModels(t, f.format, f.plant)
		if err != nil {
			t.Fatal(err)
		}
		prompts, decoded := j.ratios(f.format+", "+f.name, models)
		if !prompts.above() && !decoded.above() {
			t.Errorf("%s, %s: the error is not above the limit", f.format, f.name)
		}
	}
}

// judge compares models with transformers.
type judge struct {
	t      *testing.T
	dev    device.Device
	kv     kernels.DType
	dir    string              // what transformers read and wrote: see folder
	models map[string][]judged // by format
}

// newJudge makes models in each format, and has transformers compute their logits.
func newJudge(t *testing.T, dev device.Device, kv kernels.DType, python string) *judge {
	t.Helper()
	j := &judge{t, dev, kv, t.TempDir(), map[string][]judged{}}
	transformers := exec.Command(python, "../../../bench/tools/values.py")
	folders, err := transformers.StdinPipe() // it computes while further models are made
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	transformers.Stdout, transformers.Stderr = &said, &said
	if err := transformers.Start(); err != nil {
		t.Fatal(err)
	}
	made := j.makeModels(folders)
	if err := errors.Join(made, folders.Close(), transformers.Wait()); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	return j
}

// makeModels makes the models of all formats, and writes the folders of each to the program that reads them.
func (j *judge) makeModels(folders io.Writer) error {
	for _, name := range formatNames() {
		models, err := newModels(j.t, name, same(j.t))
		if err != nil {
			return err
		}
		j.models[name] = models
		if err := concurrently(seeds, func(i int) error { return models[i].write(j.dir, tokensOf(i)) }); err != nil {
			return err
		}
		for i := range models {
			_, err := fmt.Fprintf(folders, "%s\n%s\n", models[i].folder(j.dir, "values"), models[i].folder(j.dir, "rounded"))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// newModels returns the models of a format, of which Reel gets the tensors that change returns.
func newModels(t *testing.T, format string, change func(weights.Tensor) weights.Tensor) ([]judged, error) {
	models := make([]judged, seeds)
	return models, concurrently(seeds, func(i int) (err error) {
		models[i], err = newJudged(t, format, i, change)
		return err
	})
}

// ratios returns the ratios of the errors of models and of their controls, of prompts and of tokens after them.
func (j *judge) ratios(name string, models []judged) (prompts, decoded errorRatio) {
	j.t.Helper()
	var p, d []squares
	for i, m := range models {
		tokens := tokensOf(i)
		qp, qd := j.measure(m.quantised, tokens, logitsIn(j.t, m.folder(j.dir, "values")))
		cp, cd := j.measure(m.control, tokens, logitsIn(j.t, m.folder(j.dir, "rounded")))
		p, d = append(p, squares{qp, cp}), append(d, squares{qd, cd})
	}
	j.t.Logf("%-42s | %s | %s", name, report(p), report(d))
	return ratioOf(p), ratioOf(d)
}

// report returns the root mean square errors, and their ratio.
func report(models []squares) string {
	n, all, r := float64(len(models)*sequences*sampled*judgedShape().Vocab), sumOf(models), ratioOf(models)
	return fmt.Sprintf("%9.2e %9.2e %6.3f ± %.3f", math.Sqrt(all.quantised/n), math.Sqrt(all.control/n), r.value, r.deviation)
}

// logitsIn reads what transformers left in dir: logits by sequence, float32 [2·sampled][vocab] each.
func logitsIn(t *testing.T, dir string) (all [][]float32) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "logits.f32"))
	size := 2 * sampled * judgedShape().Vocab
	if err != nil || len(raw) != 4*size*sequences {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	for len(raw) > 0 {
		all = append(all, floatsOf(raw[:4*size]))
		raw = raw[4*size:]
	}
	return all
}

func floatsOf(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// distance returns the sum of squared differences.
func distance(got, want []float32) (sum float64) {
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		sum += d * d
	}
	return sum
}

// measure returns the sums of squared differences from the logits of transformers: of the last tokens of prompts, and of
// tokens after them.
func (j *judge) measure(o openedModel, tokens [][]int32, want [][]float32) (prompts, decoded float64) {
	j.t.Helper()
	tensors := o.tensors
	if j.kv == kernels.F32 { // on the host, where only products with bfloat16 would round activations
		tensors = widened(tensors)
	}
	m, err := model.Load(j.dev, o.c, tensors, func(float64) {})
	if err != nil {
		j.t.Fatal(err)
	}
	pages, vocab := o.c.Context/16, o.c.Vocab
	r := newRunnerIn(j.t, j.dev, m, model.Geometry{MaxRows: prompted, Slots: sequences, MaxSamples: max(sampled, sequences),
		Context: o.c.Context, PageTokens: 16, Pages: sequences * pages, RingSlots: 2, KVType: j.kv})
	for slot, sequence := range tokens {
		r.beginIn(slot, pages)
		r.step(kernels.Step{Rows: rowsOf(slot, sequence[:prompted]), Samples: upTo(prompted)[prompted-sampled:]},
			model.Shape{Rows: prompted, Class: kernels.Prefill, Samples: sampled})
		prompts += distance(r.allLogits(sampled), want[slot][:sampled*vocab])
	}
	for i := range sampled {
		step := kernels.Step{Samples: upTo(sequences)}
		for slot, sequence := range tokens {
			step.Rows = append(step.Rows, kernels.Row{Slot: int32(slot), Position: int32(prompted + i), Token: sequence[prompted+i]})
		}
		r.step(step, model.Shape{Rows: sequences, Samples: sequences})
		for slot, got := range slices.Collect(slices.Chunk(r.allLogits(sequences), vocab)) {
			decoded += distance(got, want[slot][(sampled+i)*vocab:][:vocab])
		}
	}
	r.free()
	if err := m.Free(j.dev); err != nil {
		j.t.Fatal(err)
	}
	return prompts, decoded
}

// upTo returns 0 to n-1.
func upTo(n int) (all []int32) {
	for i := range n {
		all = append(all, int32(i))
	}
	return all
}

func rowsOf(slot int, tokens []int32) (rows []kernels.Row) {
	for i, token := range tokens {
		rows = append(rows, kernels.Row{Slot: int32(slot), Position: int32(i), Token: token})
	}
	return rows
}

// beginIn gives a slot to a sequence of so many pages.
func (r *runner) beginIn(slot, pages int) {
	init := kernels.Step{Inits: []kernels.Init{{Slot: int32(slot), Generation: 2}}}
	for i := range pages {
		init.Pages = append(init.Pages, kernels.PageEntry{Slot: int32(slot), Index: int32(i), Page: int32(1 + slot*pages + i)})
	}
	r.step(init, model.Shape{Rows: 1})
}

// allLogits returns those of the first rows that the last step sampled.
func (r *runner) allLogits(rows int) []float32 {
	r.t.Helper()
	b := r.memory.Logits().Slice(0, int64(4*rows*r.m.Config.Vocab))
	raw := make([]byte, b.Bytes())
	if err := r.dev.Read(raw, b); err != nil {
		r.t.Fatal(err)
	}
	return floatsOf(raw)
}

// concurrently calls each for 0 to n-1, on all processors, and returns the errors.
func concurrently(n int, each func(i int) error) error {
	errs, next, wait := make([]error, n), make(chan int), sync.WaitGroup{}
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				errs[i] = each(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
	return errors.Join(errs...)
}

// Models in each quantised format on the host, where errors are those of float32.
func TestFormatsEqualTransformers(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	equalTransformers(t, h, kernels.F32)
}
