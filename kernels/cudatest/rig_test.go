//go:build cuda

package cudatest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"reel.internal/reel/kernels"
	images "reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// gpu is GPU 0. All tests share it.
var gpu = sync.OnceValues(func() (*cuda.Device, error) { return cuda.New(0, images.Kernels) })

// both is a host and a GPU with the same inputs. Index 0 is the host, 1 the GPU.
type both struct {
	t       testing.TB
	r       *rand.Rand
	h       *device.Host
	g       *cuda.Device
	devices [2]device.Device
	streams [2]device.Stream
}

// twin is a buffer on the host and one on the GPU.
type twin [2]device.Buffer

func newBoth(t testing.TB) *both {
	t.Helper()
	g, err := gpu()
	if err != nil {
		t.Fatalf("this test wants an NVIDIA GPU: %v", err)
	}
	return bothWith(t, g)
}

// bothWith is newBoth with this GPU.
func bothWith(t testing.TB, g *cuda.Device) *both {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := &both{t: t, r: rand.New(rand.NewPCG(seed, 1)), h: device.NewHost(device.HostOptions{}), g: g}
	b.devices = [2]device.Device{b.h, g}
	t.Cleanup(func() { b.h.Close() })
	for i := range b.streams {
		var err error
		b.streams[i], err = b.devices[i].NewStream()
		b.must(err)
		t.Cleanup(func() { b.must(b.streams[i].Destroy()) })
	}
	return b
}

func (b *both) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// load copies data to the host or the GPU, until the test ends.
func (b *both) load(on int, data []byte) device.Buffer {
	b.t.Helper()
	x, err := b.devices[on].Load(data)
	b.must(err)
	b.t.Cleanup(func() { b.must(b.devices[on].Free(x)) })
	return x
}

// attendWorkspace returns an Attend.Workspace on the GPU.
func (b *both) attendWorkspace(rows, heads, headDim, context int) device.Buffer {
	b.t.Helper()
	return b.load(1, make([]byte, kernels.AttendWorkspaceBytes(rows, heads, headDim, context)))
}

// bytesOf views values as bytes.
func bytesOf[T any](v []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(one)))
}

// put copies values to both.
func put[T any](b *both, v []T) twin {
	b.t.Helper()
	return twin{b.load(0, bytesOf(slices.Clone(v))), b.load(1, bytesOf(v))}
}

// poisoned returns n float32 NaN on both.
func (b *both) poisoned(n int) twin {
	b.t.Helper()
	v := make([]uint32, n)
	for i := range v {
		v[i] = kernels.Poison
	}
	return put(b, v)
}

// normal returns n random values times scale, truncated to bfloat16.
func (b *both) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = toBF16(float32(b.r.NormFloat64() * scale))
	}
	return v
}

// counted returns 0 to n-1.
func counted(n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(i)
	}
	return v
}

// toBF16 truncates v to a bfloat16.
func toBF16(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ 0xffff) }

// bitsOf returns the bits of values that are bfloat16.
func bitsOf(v []float32) []uint16 {
	u := make([]uint16, len(v))
	for i, x := range v {
		u[i] = uint16(math.Float32bits(x) >> 16)
	}
	return u
}

// run launches op(0) on the host and op(1) on the GPU, and waits for both.
func (b *both) run(op func(on int) device.Op) {
	b.t.Helper()
	for on := range b.streams {
		b.must(b.streams[on].Launch(op(on)))
	}
	for on := range b.streams {
		b.must(b.streams[on].Synchronize())
	}
}

// onGPU launches ops on the GPU only, and waits.
func (b *both) onGPU(ops ...device.Op) {
	b.t.Helper()
	for _, op := range ops {
		b.must(b.streams[1].Launch(op))
	}
	b.must(b.streams[1].Synchronize())
}

// oneByOne launches ops on the GPU, and waits for each before it launches the next.
func (b *both) oneByOne(ops ...device.Op) {
	b.t.Helper()
	for _, op := range ops {
		b.onGPU(op)
	}
}

// read returns the content of a buffer of either.
func read[T any](b *both, on int, x device.Buffer) []T {
	b.t.Helper()
	var one T
	v := make([]T, x.Bytes()/int64(unsafe.Sizeof(one)))
	b.must(b.devices[on].Read(bytesOf(v), x))
	return v
}

// close fails if an element on the GPU is NaN, or differs from the host's by more than atol +
// rtol·|host's|. It returns the largest difference.
func (b *both) close(name string, x twin, atol, rtol float64) float64 {
	b.t.Helper()
	return b.closeTo(name, read[float32](b, 1, x[1]), read[float32](b, 0, x[0]), func(int) float64 { return atol },
		rtol)
}

// closeTo is close with a tolerance for each element.
func (b *both) closeTo(name string, got, want []float32, atol func(i int) float64, rtol float64) (most float64) {
	b.t.Helper()
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if !(d <= atol(i)+rtol*math.Abs(float64(w))) {
			b.t.Fatalf("%s: element %d is %v, wants %v", name, i, got[i], w)
		}
		most = max(most, d)
	}
	return most
}

// same fails if the GPU's bits differ from the host's.
func (b *both) same(name string, x twin) {
	b.t.Helper()
	b.equal(name, read[uint32](b, 1, x[1]), read[uint32](b, 0, x[0]))
}

// equal fails at the first difference.
func (b *both) equal(name string, got, want []uint32) {
	b.t.Helper()
	for i, w := range want {
		if got[i] != w {
			b.t.Fatalf("%s: word %d is %#x, wants %#x", name, i, got[i], w)
		}
	}
}

// stager holds a descriptor ring and slots on both, for steps as an engine writes them.
type stager struct {
	*both
	layout  kernels.StepLayout
	slots   [2]kernels.Slots
	rows    [2]kernels.Rows
	ring    twin
	counter twin
	mapped  [2]*device.Mapped
	number  uint64
}

const stagerRing = 5

func newStager(b *both, slots, pages, context int, layout kernels.StepLayout) *stager {
	s := &stager{both: b, layout: layout}
	for on, d := range b.devices {
		var err error
		s.slots[on], err = kernels.AllocSlots(d, slots, pages, context)
		b.must(err)
		s.rows[on], err = kernels.AllocRows(d, layout)
		b.must(err)
		s.ring[on], s.mapped[on], err = d.Pinned(4 * int64(stagerRing*layout.Words()))
		b.must(err)
		s.counter[on], err = d.Alloc(4)
		b.must(err)
	}
	b.t.Cleanup(s.free)
	return s
}

func (s *stager) free() {
	for on, d := range s.devices {
		l, r := s.slots[on], s.rows[on]
		for _, x := range []device.Buffer{l.BlockTable, l.Length, l.Token, l.History, l.Params, r.Slot, r.Position,
			r.Token, r.Sample, r.Drawn, r.Number,
			s.ring[on], s.counter[on]} {
			s.must(d.Free(x))
		}
	}
}

// write writes the next step to both rings.
func (s *stager) write(step kernels.Step) {
	s.t.Helper()
	step.Number = s.number
	at := int(s.number%stagerRing) * s.layout.Words() * 4
	for _, m := range s.mapped {
		s.must(s.layout.Encode(m.Bytes()[at:at+4*s.layout.Words()], &step))
	}
	s.number++
}

// op returns a Stage of the next step in the ring, for T rows and N samples with padding.
func (s *stager) op(on, T, N int) device.Op {
	return kernels.Stage{Ring: s.ring[on], Counter: s.counter[on], Layout: s.layout, Slots: s.slots[on],
		Rows: s.rows[on], RingSlots: stagerRing, T: T, N: N}
}

// stage stages step on both.
func (s *stager) stage(step kernels.Step, T, N int) {
	s.t.Helper()
	s.write(step)
	s.run(func(on int) device.Op { return s.op(on, T, N) })
}

// result returns record i of the step staged last from a record ring.
func (s *stager) result(ring []byte, i int) (r kernels.Record) {
	at := (int((s.number-1)%stagerRing)*s.layout.MaxSamples + i) * kernels.RecordWords * 4
	kernels.DecodeRecord(ring[at:at+4*kernels.RecordWords], &r)
	if r.Step != s.number-1 || binary.LittleEndian.Uint32(ring[at+16:]) != 1 {
		s.t.Fatalf("record %d is of step %d with %d tokens, wants step %d with 1", i, r.Step, r.Count, s.number-1)
	}
	return r
}

// classOf returns the class of prompt rows, or of generated ones.
func classOf(prefill bool) kernels.Class {
	if prefill {
		return kernels.Prefill
	}
	return kernels.Decode
}
