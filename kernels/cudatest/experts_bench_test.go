//go:build cuda

package cudatest

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// mixtureShape is the dimensions of a model's experts.
type mixtureShape struct {
	name                         string
	hidden, inner, experts, used int
	formats                      []kernels.DType
}

var mixtureShapes = []mixtureShape{
	{"qwen3-30b-a3b", 2048, 768, 128, 8, []kernels.DType{kernels.BF16, kernels.Q4_K}},
	{"gpt-oss-20b", 2880, 2880, 32, 4, []kernels.DType{kernels.MXFP4}},
}

// promptRows is the rows that count as a prompt's.
const promptRows = 400

// mixtureLayers is the number of layers that are measured: their experts are larger than the L2 cache.
const mixtureLayers = 3

// layer returns a layer's router and experts on the GPU over random rows, and results that go elsewhere.
func (s mixtureShape) layer(b *both, format kernels.DType, rows int, some []byte) []device.Op {
	weight := func(n, cols int) kernels.Weight {
		size := int(format.Bytes(int64(n * cols)))
		w, err := kernels.LoadWeight(b.g, format, n, cols, bytes.Repeat(some, size/len(some)+1)[:size])
		b.must(err)
		b.t.Cleanup(func() { b.must(b.g.Free(w.Data)) })
		return w
	}
	zeros := func(n int) device.Buffer { return b.load(1, make([]byte, 4*n)) }
	random := func(n int, scale float64) device.Buffer { return b.load(1, bytesOf(b.normal(n, scale))) }
	chosen := kernels.Chosen{IDs: zeros(rows * s.used), Weights: zeros(rows * s.used), Experts: s.experts, Used: s.used,
		Segments: zeros(int(kernels.SegmentsBytes(rows, s.used, s.experts) / 4))}
	x, norm, inner := random(rows*s.hidden, 1), random(s.hidden, 1), zeros(rows*s.used*s.inner)
	work := kernels.ExpertWorkspace{Results: zeros(rows * s.used * s.hidden),
		Rounded: zeros(int(kernels.ExpertsRoundedBytes(rows, s.used, s.experts, s.hidden) / 4)),
		Gated:   zeros(int(kernels.ExpertsRoundedBytes(rows, s.used, s.experts, s.inner) / 4))}
	class := kernels.Decode
	if rows == promptRows {
		class = kernels.Prefill
	}
	return []device.Op{
		kernels.Route{X: x, Norm: norm, Router: random(s.experts*s.hidden, 1/math.Sqrt(float64(s.hidden))),
			Chosen:    chosen,
			Normalise: true, T: rows, Hidden: s.hidden, Eps: 1e-6,
			Workspace: kernels.RouteWorkspace{Logits: zeros(rows * s.experts), Arrivals: zeros(rows)}},
		kernels.ExpertGateUp{X: x, Norm: norm, Gate: weight(s.experts*s.inner, s.hidden),
			Up:     weight(s.experts*s.inner, s.hidden),
			Chosen: chosen, Out: inner, Workspace: work, T: rows, Eps: 1e-6, Class: class, HandsOver: true},
		kernels.ExpertDown{Down: weight(s.experts*s.hidden, s.inner), In: inner, X: zeros(rows * s.hidden),
			Chosen:    chosen,
			Workspace: work, T: rows, Class: class, InputIsRounded: true},
	}
}

// BenchmarkCUDAExperts measures the router and the experts of a layer, at Qwen3-30B-A3B's and gpt-oss-20b's shapes: the
// three ops as they follow each other, as one op, then each alone. The bytes are those of the router and of the experts that the
// rows choose, each once.
func BenchmarkCUDAExperts(t *testing.B) {
	for _, s := range mixtureShapes {
		for _, format := range s.formats {
			for _, rows := range []int{1, 8, 16, 64, promptRows} {
				t.Run(fmt.Sprintf("%s/%d/%d-rows", s.name, format, rows), func(t *testing.B) { s.benchmark(t, format, rows) })
			}
		}
	}
}

func (s mixtureShape) benchmark(t *testing.B, format kernels.DType, rows int) {
	b := newBoth(t)
	some := b.elements(format, 1<<20, 0.02)
	var ops []device.Op
	for range mixtureLayers {
		ops = append(ops, s.layer(b, format, rows, some)...)
	}
	b.onGPU(ops...)
	var read [3]float64 // by an op, in all layers
	used := 0.
	for i := 0; i < len(ops); i += 3 {
		n := float64(distinct(b, ops[i].(kernels.Route).Chosen))
		used += n / mixtureLayers
		share := n / float64(s.experts)
		read[0] += float64(4 * s.experts * s.hidden)
		read[1] += float64(2*ops[i+1].(kernels.ExpertGateUp).Gate.Data.Bytes()) * share
		read[2] += float64(ops[i+2].(kernels.ExpertDown).Down.Data.Bytes()) * share
	}
	t.Run("layer", func(t *testing.B) {
		b.perLaunch(t, (read[0]+read[1]+read[2])/float64(len(ops)), ops...)
		t.ReportMetric(used, "experts")
	})
	t.Run("together", func(t *testing.B) {
		var layers []device.Op
		for i := 0; i < len(ops); i += 3 {
			layers = append(layers, kernels.Experts{Route: ops[i].(kernels.Route), GateUp: ops[i+1].(kernels.ExpertGateUp),
				Down: ops[i+2].(kernels.ExpertDown)})
		}
		b.perLaunch(t, (read[0]+read[1]+read[2])/mixtureLayers, layers...)
	})
	for op, name := range []string{"route", "gateup", "down"} {
		t.Run(name, func(t *testing.B) {
			b.perLaunch(t, read[op]/mixtureLayers, ops[op], ops[op+3], ops[op+6])
		})
	}
}

// distinct returns the number of experts that a step's rows chose.
func distinct(b *both, c kernels.Chosen) int {
	seen := map[int32]bool{}
	for _, id := range read[int32](b, 1, c.IDs) {
		seen[id] = true
	}
	return len(seen)
}
