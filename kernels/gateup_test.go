package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// Gate and up in orders of their own give the products in these orders, bit for bit, times a scale.
func TestGateUpInOrder(t *testing.T) {
	const hidden, inner, T = 256, 33, 3
	r, h := rand.New(rand.NewPCG(rand.Uint64(), 25)), device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	l := NewLoader(h)
	weight := func() Weight {
		data, _ := quantisedWeight(r, G4_32, inner, hidden)
		w, err := l.Weight(G4_32, inner, hidden, data)
		if err != nil {
			t.Fatal(err)
		}
		order := make([]int32, hidden)
		for j, i := range r.Perm(hidden) {
			order[j] = int32(i)
		}
		if w, err = l.Order(w, order); err != nil {
			t.Fatal(err)
		}
		return w
	}
	vector := func(n int) device.Buffer {
		b, err := h.Alloc(int64(4 * n))
		if err != nil {
			t.Fatal(err)
		}
		for i := range h.Float32(b) {
			h.Float32(b)[i] = float32(r.NormFloat64())
		}
		return b
	}
	o := GateUp{X: vector(T * hidden), Norm: vector(hidden), Gate: weight(), Up: weight(), Out: vector(T * inner), T: T,
		Eps: 1e-5}
	n := normRows(h, h.Float32(o.X), h.Float32(o.Norm), o.Eps, T)
	gate, up := make([]float32, T*inner), make([]float32, T*inner)
	product(h, o.Gate, n, T, gate, inner, false)
	product(h, o.Up, n, T, up, inner, false)
	SiLU.gate(gate, up)
	o.Host(h)
	if !slices.Equal(h.Float32(o.Out), gate) {
		t.Errorf("%v, wants %v", h.Float32(o.Out), gate)
	}
	o.Scale = 1. / 64
	for i := range gate {
		gate[i] /= 64
	}
	if o.Host(h); !slices.Equal(h.Float32(o.Out), gate) {
		t.Errorf("with a scale: %v, wants %v", h.Float32(o.Out), gate)
	}
}
