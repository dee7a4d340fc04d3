//go:build cuda

package cudatest

import (
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// drafting is the rows of a verify pass after its Stage, on both devices: groups of rows, of which some end with
// padding and some are padding altogether. Some sequences have masks, and so drafts of the host.
type drafting struct {
	*both
	groups, queries int
	slots           [2]kernels.Slots
	rows            [2]kernels.Rows
	words           draftWords
}

// draftWords are the initial values. Unused parts are random.
type draftWords struct{ slot, position, token, sample, drawn, number, last, length, history []int32 }

func newDrafting(b *both, groups, queries, context int) *drafting {
	d := &drafting{both: b, groups: groups, queries: queries}
	count, rows := groups+1, groups*queries
	d.words = draftWords{slot: slices.Repeat([]int32{int32(groups)}, rows), position: make([]int32, rows),
		token: make([]int32, rows), sample: slices.Repeat([]int32{-1}, rows), drawn: d.random(rows, 3),
		number: []int32{b.r.Int32N(100), 0}, last: d.random(count, 99), length: d.random(count, 99)}
	for range count {
		d.words.history = append(d.words.history, d.text(context)...)
	}
	for g := range groups {
		d.group(g, context)
	}
	params := make([]int32, count*kernels.ParamWords)
	for slot := range count {
		masked := kernels.Init{Sampling: kernels.Sampling{Masked: b.r.IntN(4) == 0}}
		words := masked.Params()
		copy(params[slot*kernels.ParamWords:], words[:])
	}
	w := &d.words
	slot, position, token, sample, drawn, number := put(b, w.slot), put(b, w.position), put(b, w.token),
		put(b, w.sample), put(b, w.drawn), put(b, w.number)
	last, length, history, rest := put(b, w.last), put(b, w.length), put(b, w.history),
		put(b, params)
	for on := range d.rows {
		d.rows[on] = kernels.Rows{Slot: slot[on], Position: position[on], Token: token[on], Sample: sample[on],
			Drawn: drawn[on], Number: number[on]}
		d.slots[on] = kernels.Slots{Count: count, Pages: 1, Context: context, BlockTable: rest[on], Length: length[on],
			Token: last[on], History: history[on], Params: rest[on]}
	}
	return d
}

func (b *both) random(n int, below int32) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = b.r.Int32N(below)
	}
	return v
}

// text returns random tokens of a small or a large vocabulary, which repeat themselves now and then.
func (b *both) text(n int) []int32 {
	v := b.random(n, []int32{1, 2, 5, 50, 30000}[b.r.IntN(5)])
	if period := 1 + b.r.IntN(40); b.r.IntN(2) == 0 {
		for i := period; i < n; i++ {
			if b.r.IntN(30) != 0 {
				v[i] = v[i-period]
			}
		}
	}
	return v
}

// group sets the rows of group g, and copies the last tokens of its sequence to earlier places.
func (d *drafting) group(g, context int) {
	if g > 0 && d.r.IntN(6) == 0 {
		return
	}
	at, w := d.r.IntN(context-d.queries+1), &d.words
	if d.r.IntN(4) == 0 {
		at = d.r.IntN(min(20, context-d.queries+1))
	}
	history := w.history[g*context:][:context]
	for range d.r.IntN(5) {
		end := d.r.IntN(at + 1)
		for i := range min(1+d.r.IntN(2+kernels.LookupMatch), end+1) {
			history[end-i] = history[at-i]
		}
	}
	for t := g * d.queries; t < (g+1)*d.queries; t++ {
		w.sample[t] = int32(t) // also of padding
	}
	for j := range 1 + d.r.IntN(d.queries) {
		t := g*d.queries + j
		w.slot[t], w.position[t], w.token[t] = int32(g), int32(at+j), d.r.Int32N(3)
		if j > 0 {
			history[at+j] = 0 // as Stage leaves it
		}
		if j > 0 && d.r.IntN(3) > 0 {
			w.token[t] = w.drawn[t-1]
		}
	}
}

// sameDrafts fails if the tokens of rows or the history differ between the devices.
func (d *drafting) sameDrafts(name string) {
	d.t.Helper()
	d.same(name+": tokens", twin{d.rows[0].Token, d.rows[1].Token})
	d.same(name+": history", twin{d.slots[0].History, d.slots[1].History})
}

func (d *drafting) lookup(on int) device.Op {
	return kernels.Lookup{Rows: d.rows[on], Slots: d.slots[on], T: d.groups * d.queries, Queries: d.queries}
}

// Drafts from a sequence's own text are those of the host: over texts that repeat themselves or do not, and from the
// first token to more than a thread has in flight.
func TestCUDALookup(t *testing.T) {
	b := newBoth(t)
	for _, context := range []int{9, 17, 40, 300, 5000, 40000, 100_000} {
		for range 20 {
			d := newDrafting(b, 1+b.r.IntN(min(32, 1+400_000/context)), 1+b.r.IntN(8), context)
			d.run(d.lookup)
			d.sameDrafts("lookup")
		}
	}
}

// Drafts from a table are those of the table.
func TestCUDAGiven(t *testing.T) {
	b := newBoth(t)
	for range 20 {
		const context = 200
		d := newDrafting(b, 1+b.r.IntN(32), 1+b.r.IntN(8), context)
		var given twin
		tokens := b.random((d.groups+1)*context, 1000)
		for on, device := range b.devices {
			x, mapped, err := device.Pinned(4 * int64(len(tokens)))
			b.must(err)
			t.Cleanup(func() { b.must(device.Free(x)) })
			copy(viewOf[int32](mapped.Bytes()), tokens)
			given[on] = x
		}
		d.run(func(on int) device.Op {
			return kernels.Given{Rows: d.rows[on], Slots: d.slots[on], Tokens: given[on], T: d.groups * d.queries,
				Queries: d.queries}
		})
		d.sameDrafts("given")
	}
}

// Counts, last tokens and lengths are those of the host; nothing else of a record changes.
func TestCUDAAccept(t *testing.T) {
	b := newBoth(t)
	for range 40 {
		d := newDrafting(b, 1+b.r.IntN(32), 1+b.r.IntN(8), 200)
		ring, samples := 1+b.r.IntN(4), d.groups*d.queries+b.r.IntN(5)
		var rings [2]*device.Mapped
		d.run(func(on int) device.Op {
			records, mapped, err := d.devices[on].Pinned(4 * int64(ring*samples*kernels.RecordWords))
			d.must(err)
			t.Cleanup(func() { d.must(d.devices[on].Free(records)) })
			rings[on] = mapped
			copy(mapped.Bytes(), slices.Repeat([]byte{1}, len(mapped.Bytes())))
			return kernels.Accept{Rows: d.rows[on], Slots: d.slots[on], Records: records, T: d.groups * d.queries,
				Queries: d.queries, RingSlots: ring, MaxSamples: samples}
		})
		d.equal("records", viewOf[uint32](rings[1].Bytes()), viewOf[uint32](rings[0].Bytes()))
		d.same("last tokens", twin{d.slots[0].Token, d.slots[1].Token})
		d.same("lengths", twin{d.slots[0].Length, d.slots[1].Length})
	}
}

// A verify pass leaves the tokens of all samples in Rows.Drawn, as records have them, and none in the slots.
func TestCUDASampleOfVerifyPass(t *testing.T) {
	b := newBoth(t)
	const rows, vocab = 12, 3000
	sampling := make([]kernels.Sampling, rows)
	for i := range sampling {
		sampling[i] = kernels.Sampling{Temperature: float32(i%3) / 2, TopP: 0.9, RepeatPenalty: 1.1, Seed: b.r.Uint64()}
	}
	d := newDrawing(b, sampling, vocab)
	slot, position := d.randomPositions(rows)
	logits := b.normal(rows*vocab, 3)
	left := read[uint32](b, 1, d.slots[1].Token)
	d.queries = 1
	got := d.sample(slot, position, logits, rows+4, false)
	b.equal("tokens of slots", read[uint32](b, 1, d.slots[1].Token), left)
	drawn := read[int32](b, 1, d.drawn)
	d.queries = 0
	plain := d.sample(slot, position, logits, rows+4, false)
	for i, r := range got[1] {
		if !d.sameRecord(r, plain[1][i]) || r.Logprob != plain[1][i].Logprob || drawn[i] != r.Token {
			t.Errorf("record %d is %+v with %d drawn, wants %+v", i, r, drawn[i], plain[1][i])
		}
	}
}

// BenchmarkCUDALookup measures the lookup for 1 and 8 sequences, whose last tokens nowhere stand earlier.
func BenchmarkCUDALookup(t *testing.B) {
	for name, c := range map[string]struct{ groups, context int }{"1-of-250": {1, 250}, "1-of-4000": {1, 4000},
		"8-of-4000": {8, 4000}, "1-of-100000": {1, 100_000}} {
		t.Run(name, func(t *testing.B) {
			b := newBoth(t)
			d := newDrafting(b, c.groups, 8, c.context)
			w := &d.words
			for i := range w.history {
				w.history[i] = int32(i % c.context)
			}
			for row := range w.slot {
				w.slot[row], w.position[row] = int32(row/8), int32(c.context-8+row%8)
			}
			d.rows[1].Slot, d.rows[1].Position = b.load(1, bytesOf(w.slot)), b.load(1, bytesOf(w.position))
			d.slots[1].History = b.load(1, bytesOf(w.history))
			b.perLaunch(t, float64(4*c.groups*c.context), d.lookup(1))
		})
	}
}
