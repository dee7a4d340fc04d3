//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// windows are shorter than the contexts of the test shapes: one position, less than a block of
// keys, a bit more than a split of decode, one of prefill; and 0 for none.
var windows = []int{1, 20, 259, 1100, 0}

// Rows of either class that see a window equal the host's. A row that sees only itself gets its
// own value exactly.
func TestCUDAAttendInAWindow(t *testing.T) {
	for _, window := range windows {
		for _, c := range prefillShapes {
			a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
			a.window = window
			a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(3), true)
			a.makePrompts(100)
			a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(30), true)
		}
	}
}

// A row of either class that sees one position more or less than its window is noticed.
func TestCUDAAttendNoticesAnotherWindow(t *testing.T) {
	for _, window := range windows[:4] {
		for _, wider := range []int{1, -1} {
			if window+wider == 0 {
				continue // 0 is all positions
			}
			a := newAttending(newBoth(t), 8, 2, 64, 2300)
			a.window, a.widerOnGPU = window, wider
			for range 2 {
				if !a.fails(func() { a.attend(indices(len(a.row)), len(a.row), true) }) {
					t.Errorf("a window of %d for one of %d passed, prefill %t", window+wider, window, a.prefill)
				}
				a.makePrompts(100)
			}
		}
	}
}

// With a window too, a row of either class has the same bits alone and in a batch, and a prompt
// has the same bits in any chunks.
func TestCUDAAttendInAWindowIsBatchInvariant(t *testing.T) {
	for i, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = windows[i%4]
		for range 2 {
			width, all := c.heads*c.d, indices(len(a.row))
			want := a.attend(all, len(all), false)
			a.equal("padded", bits32(a.attend(all, len(all)+70, false)), bits32(want))
			for range 40 {
				r := a.r.IntN(len(all))
				a.equal("alone", bits32(a.attend([]int{r}, 1, false)), bits32(want[r*width:(r+1)*width]))
			}
			a.makePrompts(100)
		}
		a = newAttending(newBoth(t), c.heads, c.kvHeads, c.d, []int{2300, 200, 1100}[i%3])
		a.window, a.row = windows[i%4], nil
		for p := range a.slots[0].Context {
			a.row = append(a.row, kernels.Row{Slot: 1, Position: int32(p)})
		}
		a.query = a.normal(len(a.row)*c.heads*c.d, 1)
		want := a.chunks(len(a.row))
		for _, n := range []int{1, 7, 100, 512} {
			a.equal(fmt.Sprintf("window %d, %d heads over %d of size %d, %d at a time", a.window, c.heads, c.kvHeads,
				c.d, n), a.chunks(n), want)
		}
	}
}

// QKV with biases, head norms and both equals the host's.
func TestCUDAQKVOfFamilies(t *testing.T) {
	b := newBoth(t)
	for i, rows := range oddRows {
		hidden, dim := []int{64, 80, 2048, 1040}[i%4], []int{32, 64, 96, 128, 256}[i%5]
		kvHeads, group := 1+i%3, []int{1, 2, 4, 8}[i/2%4]
		heads := kvHeads * group
		for _, prefill := range []bool{false, true} {
			a := b.newAttention([]kernels.DType{kernels.BF16, kernels.F16}[i%2], kernels.BF16, rows, hidden, heads,
				kvHeads, dim)
			bias, norms := put(b, b.normal((heads+2*kvHeads)*dim, 1)), put(b, b.powers(2*dim))
			raw := b.beforeRoPE(rows, kvHeads, dim)
			for on := range a.op {
				o := &a.op[on]
				o.Class = classOf(prefill)
				o.BeforeRoPE = raw
				if i%3 != 1 {
					o.Bias = bias[on]
				}
				if i%3 != 2 {
					o.HeadNorms = norms[on]
				}
			}
			name := fmt.Sprintf("%d rows of %d, %d heads of %d for each of %d, prefill %t", rows, hidden, group, dim,
				kvHeads, prefill)
			b.run(func(on int) device.Op { return a.op[on] })
			// A norm scales heads with small products, and their errors, to the size of 1.
			tolerance := 8 * sums(hidden)
			b.close(name+": q", a.out, tolerance, 1e-3)
			got := asFloat32(kernels.BF16, read[byte](b, 1, a.op[1].KV.Data))
			for j, want := range read[float32](b, 0, a.op[0].KV.Data) {
				if math.IsNaN(float64(want)) != math.IsNaN(float64(got[j])) ||
					math.Abs(float64(got[j]-want)) > tolerance+math.Abs(float64(want))/128 {
					t.Fatalf("%s: element %d of the pool is %v, wants %v", name, j, got[j], want)
				}
			}
		}
	}
}

// beforeRoPE returns memory for keys and values before RoPE on the GPU, until the test ends.
func (b *both) beforeRoPE(rows, kvHeads, dim int) kernels.KVBeforeRoPE {
	b.t.Helper()
	r, err := kernels.AllocKVBeforeRoPE(b.g, rows, kvHeads*dim, dim)
	b.must(err)
	b.t.Cleanup(func() {
		for _, x := range []device.Buffer{r.Data, r.Index, r.Zero, r.Identity} {
			b.must(b.g.Free(x))
		}
	})
	b.onGPU(kernels.Fill{Data: r.Data, Value: kernels.Poison})
	return r
}
