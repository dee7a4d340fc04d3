package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// rig is a host device with slots, rows and a KV pool. Its pages are in random order, and its
// memory holds NaN until an op writes it.
type rig struct {
	t      testing.TB
	r      *rand.Rand
	h      *device.Host
	stream device.Stream
	layout StepLayout
	slots  Slots
	shared SlotsView
	rows   Rows
	kv     KV
	ring   device.Buffer
	mapped *device.Mapped
	count  device.Buffer
	number uint64
	pages  []int32
}

const (
	rigContext = 40
	rigPage    = 4
	rigLayers  = 2
	rigRing    = 3
	rigVocab   = 1000 // of masks, at most
)

func newRig(t testing.TB, kvHeads, headDim int) *rig {
	t.Helper()
	g := &rig{t: t, r: rand.New(rand.NewPCG(rand.Uint64(), 3)), h: device.NewHost(device.HostOptions{Workers: 2}),
		layout: StepLayout{MaxRows: 32, MaxSamples: 24}}
	g.stream, _ = g.h.NewStream()
	t.Cleanup(func() {
		g.must(g.stream.Destroy())
		g.h.Close()
	})
	var err error
	g.slots, err = AllocSlots(g.h, 8, rigContext/rigPage, rigContext)
	g.must(err)
	g.shared, err = g.slots.AllocShared(g.h, rigVocab)
	g.must(err)
	g.rows, err = AllocRows(g.h, g.layout)
	g.must(err)
	g.kv = KV{Pages: 81, PageTokens: rigPage, Layers: rigLayers, Heads: kvHeads, HeadDim: headDim}
	g.kv.Data = g.poisoned(int(g.kv.PageBytes()/4) * g.kv.Pages)
	g.ring, g.mapped, err = g.h.Pinned(4 * int64(rigRing*g.layout.Words()))
	g.must(err)
	g.count, err = g.h.Alloc(4)
	g.must(err)
	for _, p := range g.r.Perm(80) {
		g.pages = append(g.pages, int32(p+1))
	}
	return g
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// poisoned returns a buffer of n float32 NaN.
func (g *rig) poisoned(n int) device.Buffer {
	b, err := g.h.Alloc(4 * int64(n))
	g.must(err)
	for i := range g.h.Float32(b) {
		g.h.Float32(b)[i] = float32(math.NaN())
	}
	return b
}

// random returns a buffer of n normal float32 values, and the values.
func (g *rig) random(n int) (device.Buffer, []float32) {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.r.NormFloat64())
	}
	b, err := LoadVector(g.h, v)
	g.must(err)
	return b, v
}

// weight returns a random [rows][cols] weight, and its values in float64.
func (g *rig) weight(t DType, rows, cols int) (Weight, []float64) {
	values := make([]float64, rows*cols)
	raw := make([]uint32, rows*cols)
	data := unsafe.Slice((*byte)(unsafe.Pointer(&raw[0])), 4*len(raw))[:int64(len(raw))*t.Size()]
	for i := range values {
		bits := math.Float32bits(float32(g.r.NormFloat64()) / float32(math.Sqrt(float64(cols))))
		if t == BF16 {
			bits &= 0xffff0000
			data[2*i], data[2*i+1] = byte(bits>>16), byte(bits>>24)
		} else {
			raw[i] = bits
		}
		values[i] = float64(math.Float32frombits(bits))
	}
	w, err := LoadWeight(g.h, t, rows, cols, data)
	g.must(err)
	return w, values
}

// launch launches op and waits for it.
func (g *rig) launch(op device.Op) {
	g.t.Helper()
	g.must(g.stream.Launch(op))
	g.must(g.stream.Synchronize())
}

// stage launches Stage for s, padded to T rows and N samples.
func (g *rig) stage(s Step, T, N int) {
	g.t.Helper()
	s.Number = g.number
	at := int(g.number%rigRing) * g.layout.Words() * 4
	g.must(g.layout.Encode(g.mapped.Bytes()[at:at+4*g.layout.Words()], &s))
	g.number++
	g.launch(Stage{Ring: g.ring, Counter: g.count, Layout: g.layout, Slots: g.slots, Rows: g.rows, RingSlots: rigRing,
		T: T, N: N})
}

// near reports whether got equals want within the rounding of a float32 sum of n terms.
func near(got float32, want float64, n int) bool {
	return math.Abs(float64(got)-want) <= 2e-6*math.Sqrt(float64(n))*(1+math.Abs(want))
}
