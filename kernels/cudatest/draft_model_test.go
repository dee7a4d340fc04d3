//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// A draft model's rows are those of the host, for each draft.
func TestCUDADraftRows(t *testing.T) {
	b := newBoth(t)
	for range 40 {
		d := newDrafting(b, 1+b.r.IntN(32), 1+b.r.IntN(8), 200)
		params := b.random((d.groups+1)*kernels.ParamWords, 150)
		words, rows := put(b, params), 2*d.groups*d.queries
		var out [2]kernels.Rows
		slot, position, token, sample := b.poisoned(rows), b.poisoned(rows), b.poisoned(rows), b.poisoned(d.groups)
		for on := range out {
			d.slots[on].Params = words[on]
			out[on] = kernels.Rows{Slot: slot[on], Position: position[on], Token: token[on], Sample: sample[on]}
		}
		vocab := 1 + b.r.IntN(60)
		for draft := range max(2, d.queries) {
			d.run(func(on int) device.Op {
				return kernels.DraftRows{Of: d.rows[on], Slots: d.slots[on], Rows: out[on], T: d.groups * d.queries,
					Queries: d.queries, Draft: draft, Vocab: vocab}
			})
			same := func(name string) {
				name = fmt.Sprintf("%s draft %d of %d: ", name, draft, d.queries)
				d.same(name+"slots", slot)
				d.same(name+"positions", position)
				d.same(name+"tokens", token)
				d.same(name+"samples", sample)
			}
			same("draft model,")
			d.run(func(on int) device.Op {
				return kernels.DraftRows{Of: d.rows[on], Slots: d.slots[on], Rows: out[on], T: d.groups * d.queries,
					Queries: d.queries, Draft: draft, Vocab: vocab, Single: true}
			})
			same("EAGLE-3 head,")
		}
	}
}

// A draft model's most probable tokens are those of the host: also among equals, and where logits are no numbers.
func TestCUDAPropose(t *testing.T) {
	b := newBoth(t)
	for i := range 60 {
		d := newDrafting(b, 1+b.r.IntN(8), 2+b.r.IntN(7), 200)
		cols := 1 + b.r.IntN([]int{200, 5000, 130_000}[b.r.IntN(3)])
		vocab, draft, logits := 1+b.r.IntN(cols), 1+b.r.IntN(d.queries-1), b.normal(d.groups*cols, 3)
		for at := range logits {
			switch {
			case i%4 == 1:
				logits[at] = float32(b.r.IntN(3)) // many equals
			case i%4 == 2 && b.r.IntN(3) > 0:
				logits[at] = float32(math.NaN())
			case i%4 == 3:
				logits[at] = float32(math.Inf(-1))
			}
		}
		l, tokens := put(b, logits), put(b, d.random(cols, 1000))
		if i%2 == 0 {
			tokens = twin{}
		}
		d.run(func(on int) device.Op {
			return kernels.Propose{Logits: l[on], Tokens: tokens[on], Rows: d.rows[on], Slots: d.slots[on],
				T: d.groups * d.queries, Queries: d.queries, Draft: draft, Cols: cols, Vocab: vocab}
		})
		d.sameDrafts("propose")
	}
}

// BenchmarkCUDAPropose measures the choice of one draft from a large vocabulary.
func BenchmarkCUDAPropose(t *testing.B) {
	for _, groups := range []int{1, 8} {
		t.Run(fmt.Sprint(groups), func(t *testing.B) {
			b := newBoth(t)
			const vocab = 128256
			d := newDrafting(b, groups, 8, 200)
			slot := make([]int32, 8*groups)
			for i := range slot {
				slot[i] = int32(i / 8)
			}
			d.rows[1].Slot = b.load(1, bytesOf(slot))
			logits := b.load(1, bytesOf(b.normal(groups*vocab, 3)))
			b.perLaunch(t, float64(4*groups*vocab), kernels.Propose{Logits: logits,
				Slots: d.slots[1], T: 8 * groups, Queries: 8, Draft: 1, Cols: vocab, Vocab: vocab})
		})
	}
}
