//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/internal/tune"
)

// logits are a softcap, sinks on both devices, both or neither.
type logits struct {
	softcap float32
	sinks   twin
}

// randomLogits returns a softcap, sinks of so many heads or both. Some sinks are above all scores.
func (b *both) randomLogits(heads int) (l logits) {
	kind := b.r.IntN(3)
	if kind != 0 {
		l.softcap = []float32{0.7, 5, 50}[b.r.IntN(3)]
	}
	if kind != 1 {
		sinks := b.normal(heads, 3)
		for i := range sinks {
			if b.r.IntN(4) == 0 {
				sinks[i] += 12
			}
		}
		l.sinks = put(b, sinks)
	}
	return l
}

// Rows of either class with a softcap, sinks or both equal the host's, with and without a window.
func TestCUDAAttendWithLogits(t *testing.T) {
	for _, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		for _, a.window = range []int{0, 131} {
			a.logits = a.randomLogits(c.heads)
			a.makePrompts(100)
			a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(30), true)
			a.row, a.prefill = a.ends(), false
			a.query = a.normal(len(a.row)*c.heads*c.d, 1)
			a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(3), true)
		}
	}
}

// Rows with another softcap than the host's, without one, or with other sinks are noticed.
func TestCUDAAttendNoticesOtherLogits(t *testing.T) {
	for name, change := range map[string]func(a *attending){
		"another softcap": func(a *attending) { a.logits.softcap = 1.5 },
		"no softcap":      func(a *attending) { a.logits.softcap = 0 },
		"no sinks":        func(a *attending) { a.logits.sinks = twin{} },
		"sinks of others": func(a *attending) { a.logits.sinks[1] = put(a.both, a.normal(a.heads, 3))[1] },
	} {
		a := newAttending(newBoth(t), 8, 2, 64, 700)
		a.logits = logits{softcap: 1, sinks: put(a.both, a.normal(8, 3))}
		for range 2 {
			rows := indices(len(a.row))
			want := a.attend(rows, len(rows), true)
			before := a.logits
			change(a)
			got := a.attend(rows, len(rows), false)
			a.logits = before
			position := make([]int32, len(rows))
			for i, r := range rows {
				position[i] = a.row[r].Position
			}
			if !a.fails(func() { a.near(got, want, position) }) {
				t.Errorf("%s passed, prefill %t", name, a.prefill)
			}
			a.makePrompts(100)
		}
	}
}

// With a softcap and sinks too, a row of either class has the same bits alone and in a batch; a prompt has the same
// bits in any chunks and tiles, with splits computed in parallel or one after another.
func TestCUDAAttendWithLogitsIsBatchInvariant(t *testing.T) {
	attendAsMany(t)
	defer func() { tune.ParallelSplits, tune.ShareMerge, tune.PrefillQueries = true, true, 0 }()
	for i, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.logits, a.window = a.randomLogits(c.heads), windows[i%5]
		for range 2 {
			width, all := c.heads*c.d, indices(len(a.row))
			want := a.attend(all, len(all), false)
			a.equal("padded", bits32(a.attend(all, len(all)+70, false)), bits32(want))
			for range 20 {
				r := a.r.IntN(len(all))
				a.equal("alone", bits32(a.attend([]int{r}, 1, false)), bits32(want[r*width:(r+1)*width]))
			}
			a.makePrompts(100)
		}
		a = newAttending(newBoth(t), c.heads, c.kvHeads, c.d, []int{2300, 200, 1100}[i%3])
		a.logits, a.window, a.row = a.randomLogits(c.heads), windows[i%5], nil
		for p := range a.slots[0].Context {
			a.row = append(a.row, kernels.Row{Slot: 1, Position: int32(p)})
		}
		a.query = a.normal(len(a.row)*c.heads*c.d, 1)
		want := a.chunks(len(a.row))
		a.numbers(want)
		for _, n := range []int{1, 7, 100, 512} {
			name := fmt.Sprintf("window %d, %+v, %d at a time", a.window, c, n)
			for _, tune.PrefillQueries = range prefillTiles {
				a.equal(name, a.chunks(n), want)
			}
			tune.PrefillQueries, tune.ShareMerge = 0, false
			a.equal(name+", splits merged by one block", a.chunks(n), want)
			tune.ShareMerge, tune.ParallelSplits = true, false
			a.equal(name+", splits one after another", a.chunks(n), want)
			tune.ParallelSplits = true
		}
	}
}

// Rows of a verify pass with a softcap or sinks equal the host's.
func TestCUDAAttendVerifyWithLogits(t *testing.T) {
	b := newBoth(t)
	for range 12 {
		s := randomVerify(b, 4)
		s.logits = true
		a := newVerifying(b, s)
		a.near()
		a.compare()
	}
}

// Results with a softcap and sinks that attention hands over rounded equal those that the product rounds itself.
func TestCUDAAttendHandoverWithLogits(t *testing.T) {
	for _, c := range []struct{ heads, kvHeads, d, context int }{{8, 2, 64, 1100}, {4, 2, 256, 1100}} {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.logits = a.randomLogits(c.heads)
		a.query = a.normal(400*c.heads*c.d, 1)
		start := a.normal(400*handoverOutputs, 1)
		w := a.matrix(kernels.BF16, handoverOutputs, c.heads*c.d)[1]
		all := a.chainResult(w, a.lastRows(400), start, false)
		a.changed(all, start)
		for _, n := range []int{1, 17, 207, 400} {
			a.equal(fmt.Sprintf("%+v, %d rows", c, n), a.chainResult(w, a.lastRows(n), start, true),
				all[len(all)-n*handoverOutputs:])
		}
	}
}
