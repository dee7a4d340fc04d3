//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// placedRows are numbers of rows whose kernels exchange sums through places (gemm/places.cuh).
var placedRows = []struct {
	class kernels.Class
	rows  int
}{{kernels.Decode, 12}, {kernels.Decode, 32}, {kernels.Decode, 50}, {kernels.Decode, 64}, {kernels.Prefill, 10},
	{kernels.Prefill, 50}}

// placing is a weight and rows whose products go through places.
type placing struct {
	*both
	w, up     kernels.Weight
	x, norm   device.Buffer
	before    []float32
	workspace kernels.Workspace
}

const placingRows = 100

func (b *both) newPlacing(t kernels.DType, outputs, cols int) *placing {
	return &placing{b, b.matrix(t, outputs, cols)[1], b.matrix(t, outputs, cols)[1],
		put(b, b.normal(placingRows*cols, 3))[1], put(b, b.normal(cols, 1))[1], b.normal(placingRows*outputs, 1),
		b.workspaceFor(placingRows, cols)}
}

// run returns a projection of so many rows, added to `before`, and their gates.
func (p *placing) run(class kernels.Class, rows int) []uint32 {
	p.t.Helper()
	all := rows * p.w.Rows
	res, gated := p.load(1, bytesOf(p.before)), p.poisoned(all)[1]
	p.onGPU(kernels.Projection{W: p.w, In: p.x, X: res, T: rows, Workspace: p.workspace, Class: class},
		kernels.GateUp{X: p.x, Norm: p.norm, Gate: p.w, Up: p.up, Out: gated, T: rows, Workspace: p.workspace, Class: class,
			Eps: 1e-5})
	return slices.Concat(read[uint32](p.both, 1, res)[:all], read[uint32](p.both, 1, gated))
}

// apart returns the same by kernels without places: of one row, or of 104 tokens.
func (p *placing) apart(class kernels.Class, rows int) []uint32 {
	p.t.Helper()
	if class == kernels.Prefill {
		tune.StreamKTokens = 104
		defer func() { tune.StreamKTokens = 0 }()
		return p.run(class, rows)
	}
	cols, width := p.w.Cols, p.w.Rows
	return slices.Concat(
		p.alone(p.load(1, bytesOf(p.before)), rows, width, func(t int, out device.Buffer) device.Op {
			return kernels.Projection{W: p.w, In: row(p.x, t, cols), X: out, T: 1}
		})[:rows*width],
		p.alone(p.poisoned(rows * width)[1], rows, width, func(t int, out device.Buffer) device.Op {
			return kernels.GateUp{X: row(p.x, t, cols), Norm: p.norm, Gate: p.w, Up: p.up, Out: out, T: 1, Eps: 1e-5}
		}))
}

// placed calls compare with products of such rows, and the same by kernels without places. It checks that all places are
// empty afterwards, if empties.
func (b *both) placed(empties bool, compare func(class kernels.Class, rows int, name string, got, want []uint32)) {
	b.t.Helper()
	check := func(t kernels.DType, outputs, cols int) {
		p := b.newPlacing(t, outputs, cols)
		for _, of := range placedRows {
			if t.Quantised() && of.class == kernels.Decode {
				continue // other kernels
			}
			want := p.apart(of.class, of.rows)
			for range 3 {
				name := fmt.Sprintf("type %d, %d to %d, %d rows of class %v", t, cols, outputs, of.rows, of.class)
				got := p.run(of.class, of.rows)
				compare(of.class, of.rows, name, got, want)
				if empties {
					b.placesAreEmpty(name, p.workspace)
				}
			}
		}
	}
	for i, s := range manyShapes {
		check([]kernels.DType{kernels.BF16, kernels.F16}[i%2], s.outputs, s.cols)
	}
	for i, t := range []kernels.DType{kernels.Q8_0, kernels.Q4_K, kernels.Q4_0} {
		check(t, []int{4096, 1536, 6144}[i], []int{2048, 4096, 1024}[i])
	}
}

// placesAreEmpty checks that kernels have left neither counters nor sums behind.
func (b *both) placesAreEmpty(name string, workspace kernels.Workspace) {
	b.t.Helper()
	for i, word := range read[uint32](b, 1, workspace.Partials.Slice(0, kernels.ClearedBytes)) {
		if word != 0 {
			b.t.Fatalf("%s: word %d of counters and places is %#x", name, i, word)
		}
	}
}

// Sums that blocks leave for one another are those of kernels that wait for counters, and none is left behind.
func TestCUDAPlaces(t *testing.T) { testPlaces(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAPlacesLate(t *testing.T) { testPlaces(bothOf(t, "late")) }

func testPlaces(b *both) {
	b.placed(true, func(_ kernels.Class, _ int, name string, got, want []uint32) { b.equal(name, got, want) })
}

// Kernels that take what a place has without looking give other bits, of any number of rows: the tests above would notice.
func TestCUDAPlacesNoticeEmptyOnes(t *testing.T) {
	differ := make(map[string]bool)
	bothOf(t, "untagged").placed(false, func(class kernels.Class, rows int, _ string, got, want []uint32) {
		of := fmt.Sprintf("%d rows of class %v", rows, class)
		differ[of] = differ[of] || !slices.Equal(got, want)
	})
	for of, does := range differ {
		if !does {
			t.Errorf("%s: kernels that take empty places give the same bits: the tests of places see nothing", of)
		}
	}
}

// A sum that is no number is never taken for an empty place, whatever the bits that it comes from: those of activations,
// of weights, or of the padding of rounded rows, which nobody writes.
func TestCUDAPlacesOfWhatIsNoNumber(t *testing.T) {
	b := newBoth(t)
	for i, s := range manyShapes {
		dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
		p := b.newPlacing(dtype, s.outputs, s.cols)
		numbers, weight := p.x, p.w
		for _, bits := range []uint32{0xffffffff, 0xff81ff81, 0x7fff7fff, 0xff800000} {
			none := slices.Repeat([]uint32{bits}, placingRows*s.cols)
			p.x, p.w = b.load(1, bytesOf(none)), weight
			infinite := bits == 0xff800000
			if infinite && dtype == kernels.F16 {
				p.largest()
			} else {
				p.noNumbers(fmt.Sprintf("activations of %#x", bits))
			}
			if infinite {
				continue // half of it is a zero
			}
			w, err := kernels.LoadWeight(b.g, dtype, s.outputs, s.cols,
				bytesOf(slices.Repeat([]uint16{uint16(bits)}, s.outputs*s.cols)))
			b.must(err)
			p.x, p.w = numbers, w
			p.noNumbers(fmt.Sprintf("weights of %#x", bits))
			b.must(b.g.Free(w.Data))
			p.x, p.w = numbers, weight
			for _, of := range placedRows {
				want := p.apart(of.class, of.rows)
				b.onGPU(kernels.Fill{Data: p.workspace.Rounded, Value: bits})
				b.equal(fmt.Sprintf("padding of %#x", bits), p.run(of.class, of.rows), want)
				b.placesAreEmpty("padding", p.workspace)
			}
		}
	}
}

// largest checks a projection of infinite activations, which beside float16 are its largest number.
func (p *placing) largest() {
	p.t.Helper()
	for _, of := range placedRows {
		want, got := p.apart(of.class, of.rows), p.run(of.class, of.rows)
		projected := of.rows * p.w.Rows
		p.equal(fmt.Sprintf("infinite activations, %d rows of class %v", of.rows, of.class), got[:projected], want[:projected])
		p.placesAreEmpty("infinite activations", p.workspace)
	}
}

// noNumbers checks that all results of a projection are none.
func (p *placing) noNumbers(name string) {
	p.t.Helper()
	for _, of := range placedRows {
		name := fmt.Sprintf("%s, %d to %d, %d rows of class %v", name, p.w.Cols, p.w.Rows, of.rows, of.class)
		got := viewOf[float32](bytesOf(p.run(of.class, of.rows)))[:of.rows*p.w.Rows]
		for i, v := range got {
			if v-v == 0 {
				p.t.Fatalf("%s: result %d is %v", name, i, v)
			}
		}
		p.placesAreEmpty(name, p.workspace)
	}
}
