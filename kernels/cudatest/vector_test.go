//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Vectors of sampled rows and their records, of any width and number, with padding.
func TestCUDAVector(t *testing.T) {
	for i, sampled := range []int{0, 1, 2, 8, 17, 64} {
		cols := []int{16, 576, 1024, 2560, 4096, 5120}[i]
		t.Run(fmt.Sprintf("%d of %d", sampled, cols), func(t *testing.T) { newBoth(t).vectors(cols, sampled, 1+i) })
	}
}

// vectors compares the vectors and records of the last rows of a step with the host's.
func (b *both) vectors(cols, sampled, padding int) {
	b.t.Helper()
	n := sampled + padding
	s := newStager(b, n, 4, 8, kernels.StepLayout{MaxRows: n, MaxSamples: n})
	s.stage(kernels.Step{}, n, n) // so that the step has another place in the rings
	step := kernels.Step{}
	for i := range sampled {
		step.Rows = append(step.Rows, kernels.Row{Slot: int32(sampled - 1 - i)})
		step.Inits = append(step.Inits, kernels.Init{Slot: int32(i), Generation: int32(100 + i)})
		step.Samples = append(step.Samples, int32(i))
	}
	s.stage(step, n, n)
	x, norm, index := put(b, b.normal(n*cols, 3)), put(b, b.powers(cols)), put(b, randomIndex(b, sampled, padding, n))
	vectors := b.poisoned(stagerRing * n * cols)
	var rings [2]*device.Mapped
	b.run(func(on int) device.Op {
		records, mapped, err := b.devices[on].Pinned(4 * int64(stagerRing*n*kernels.RecordWords))
		b.must(err)
		b.t.Cleanup(func() { b.must(b.devices[on].Free(records)) })
		rings[on] = mapped
		return kernels.Vector{X: x[on], Index: index[on], Norm: norm[on], Rows: s.rows[on], Slots: s.slots[on],
			Records: records, Vectors: vectors[on], T: n, N: n, Cols: cols, RingSlots: stagerRing, MaxSamples: n,
			Eps: 1e-6}
	})
	host, gpu := read[float32](b, 0, vectors[0]), read[float32](b, 1, vectors[1])
	for i, want := range host {
		got, within := gpu[i], 1e-6*(1+math.Abs(float64(want)))
		if unwritten := want != want && got != got; !unwritten && !(math.Abs(float64(got-want)) <= within) {
			b.t.Fatalf("element %d of %d columns is %v, wants %v", i, cols, got, want)
		}
	}
	for i := range sampled {
		got, want := s.result(rings[1].Bytes(), i), s.result(rings[0].Bytes(), i)
		if got.Slot != want.Slot || got.Generation != want.Generation || got.Token != 0 || got.Logprob != 0 ||
			want.Generation != 100+want.Slot {
			b.t.Errorf("record %d is %+v, wants %+v", i, got, want)
		}
	}
}

// A row has the same vector, bit for bit, wherever it stands and whoever is beside it. A vector that is not finite has
// a record that says so.
func TestCUDAVectorIsBatchInvariant(t *testing.T) {
	b := newBoth(t)
	const cols, n = 2560, 24
	s := newStager(b, n, 4, 8, kernels.StepLayout{MaxRows: n, MaxSamples: n})
	step := kernels.Step{Inits: []kernels.Init{{}}}
	for i := range n {
		step.Rows, step.Samples = append(step.Rows, kernels.Row{}), append(step.Samples, int32(i))
	}
	row, norm := b.normal(cols, 3), b.load(1, bytesOf(b.powers(cols)))
	var first []uint32
	for i := range n {
		all, index := b.normal(n*cols, 3), make([]int32, n)
		copy(all[i*cols:], row)
		if i > 0 {
			all[(i-1)*cols+i] = float32(math.Inf(1))
		}
		for j := range index {
			index[j] = int32(j)
		}
		s.stage(step, n, n)
		records, mapped, err := b.g.Pinned(4 * int64(stagerRing*n*kernels.RecordWords))
		b.must(err)
		vectors := b.poisoned(stagerRing * n * cols)[1]
		b.onGPU(kernels.Vector{X: b.load(1, bytesOf(all)), Index: b.load(1, bytesOf(index)), Norm: norm,
			Rows: s.rows[1], Slots: s.slots[1], Records: records, Vectors: vectors, T: n, N: n, Cols: cols,
			RingSlots: stagerRing, MaxSamples: n, Eps: 1e-6})
		got := read[uint32](b, 1, vectors)[(int((s.number-1)%stagerRing)*n+i)*cols:][:cols]
		if first == nil {
			first = got
		}
		b.equal("vector", got, first)
		for j := range n {
			if r := s.result(mapped.Bytes(), j); (r.Logprob != r.Logprob) != (i > 0 && j == i-1) {
				t.Errorf("record %d has log-probability %v", j, r.Logprob)
			}
		}
		b.must(b.g.Free(records))
	}
}
