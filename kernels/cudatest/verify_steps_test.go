//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// verifySteps is what verify passes have besides a model: stage, lookup, sample and accept on both devices, over logits
// that are the same in each step. So sequences repeat themselves, and some drafts stand. The last sequence has masks, one
// for each row, and drafts of the host.
type verifySteps struct {
	*stager
	queries, rows  int
	logits, edited twin
	records        [2]device.Buffer
	mapped         [2]*device.Mapped
	shared         [2]kernels.SlotsView
}

const verifyGroups, verifyMasked, verifyVocab, verifyContext = 3, 2, 40, 600

func newVerifySteps(b *both, queries int) *verifySteps {
	rows := (verifyGroups + 1) * queries // the last group is padding
	v := &verifySteps{queries: queries, rows: rows, logits: put(b, b.normal(rows*verifyVocab, 3)),
		edited: b.poisoned(rows * verifyVocab),
		stager: newStager(b, verifyGroups, 4, verifyContext, kernels.StepLayout{MaxRows: rows, MaxSamples: rows})}
	for on, d := range b.devices {
		var err error
		v.records[on], v.mapped[on], err = d.Pinned(4 * stagerRing * int64(rows) * kernels.RecordWords)
		b.must(err)
		b.t.Cleanup(func() { b.must(d.Free(v.records[on])) })
		v.slots[on].Masks = queries
		v.shared[on] = b.shareSlots(on, &v.slots[on], verifyVocab)
	}
	return v
}

// ops returns a verify pass without a model.
func (v *verifySteps) ops(on int) []device.Op {
	rows, slots := v.stager.rows[on], v.slots[on]
	return []device.Op{
		v.op(on, v.rows, v.rows),
		kernels.Lookup{Rows: rows, Slots: slots, T: v.rows, Queries: v.queries},
		kernels.Sample{Logits: v.logits[on], Rows: rows, Slots: slots, Records: v.records[on], Edited: v.edited[on],
			T: v.rows, N: v.rows, Vocab: verifyVocab, RingSlots: stagerRing, MaxSamples: v.rows, Queries: v.queries},
		kernels.Accept{Rows: rows, Slots: slots, Records: v.records[on], T: v.rows, Queries: v.queries,
			RingSlots: stagerRing, MaxSamples: v.rows},
	}
}

// step returns a step with a random number of drafts for each sequence. The first one starts the sequences.
func (v *verifySteps) step(number int) (s kernels.Step) {
	for i := range v.queries {
		v.allow(i, v.r.Int32N(verifyVocab))
	}
	for g := range int32(verifyGroups) {
		first := kernels.Row{Slot: g, Position: kernels.FromDevice, Token: kernels.FromDevice}
		if number == 0 {
			first.Position, first.Token = v.r.Int32N(20), v.r.Int32N(verifyVocab)
			s.Inits = append(s.Inits, kernels.Init{Slot: g, Generation: g, Prompt: first.Position + 1,
				Sampling: kernels.Sampling{RepeatPenalty: 1, TopP: 1, Masked: g == verifyMasked}})
		}
		drafts := v.r.IntN(v.queries)
		for j := range v.queries {
			row := kernels.Row{Slot: kernels.NoSlot} // sampled too
			if j <= drafts {
				row = kernels.Row{Slot: g, Position: kernels.FromDevice, Token: kernels.FromDraft}
			}
			if j > 0 && j <= drafts && g == verifyMasked {
				row.Token = v.r.Int32N(verifyVocab)
				v.allow(j-1, row.Token)
			}
			if j == 0 {
				row = first
			}
			s.Rows, s.Samples = append(s.Rows, row), append(s.Samples, int32(len(s.Rows)))
		}
	}
	return s
}

// allow has mask i of the masked sequence allow a token and, most of the time, a few others.
func (v *verifySteps) allow(i int, token int32) {
	words := kernels.MaskWords(verifyVocab)
	mask := v.shared[0].Masks(verifyMasked)[i*words:][:words]
	clear(mask)
	for range v.r.IntN(3) {
		other := v.r.IntN(verifyVocab)
		mask[other/32] |= 1 << (other % 32)
	}
	mask[token/32] |= 1 << (token % 32)
	copy(v.shared[1].Masks(verifyMasked), v.shared[0].Masks(verifyMasked))
}

// compare fails if rows, slots or records differ between the devices. It returns how many drafts stand.
func (v *verifySteps) compare(name string) (stand, masked int) {
	v.t.Helper()
	for what, x := range map[string]func(on int) device.Buffer{
		"tokens of rows": func(on int) device.Buffer { return v.stager.rows[on].Token },
		"positions":      func(on int) device.Buffer { return v.stager.rows[on].Position },
		"last tokens":    func(on int) device.Buffer { return v.slots[on].Token.Slice(0, 4*verifyGroups) },
		"lengths":        func(on int) device.Buffer { return v.slots[on].Length.Slice(0, 4*verifyGroups) },
		"history":        func(on int) device.Buffer { return v.slots[on].History },
	} {
		v.same(name+", "+what, twin{x(0), x(1)})
	}
	at := int((v.number-1)%stagerRing) * v.rows * kernels.RecordWords * 4
	for i := range verifyGroups * v.queries {
		var r [2]kernels.Record
		for on, m := range v.mapped {
			kernels.DecodeRecord(m.Bytes()[at+i*kernels.RecordWords*4:][:kernels.RecordWords*4], &r[on])
		}
		if r[1].Count != r[0].Count || r[1].Token != r[0].Token || r[1].Slot != r[0].Slot || r[1].Step != r[0].Step {
			v.t.Fatalf("%s, record %d is %+v, wants %+v", name, i, r[1], r[0])
		}
		if i%v.queries == 0 {
			stand += int(r[0].Count) - 1
		}
		if i == verifyMasked*v.queries {
			masked += int(r[0].Count) - 1
		}
	}
	return stand, masked
}

// Verify passes leave the same rows, slots and records on host and GPU, launched one by one and replayed.
func TestCUDAVerifySteps(t *testing.T) {
	b := newBoth(t)
	stand, masked := 0, 0
	for queries := 2; queries <= 8; queries++ {
		v := newVerifySteps(b, queries)
		graph := v.capture(v.ops(1)...)
		for step := range 60 {
			v.write(v.step(step))
			for _, op := range v.ops(0) {
				b.must(b.streams[0].Launch(op))
			}
			b.must(b.streams[0].Synchronize())
			if step%2 == 0 {
				b.onGPU(v.ops(1)...)
			} else {
				b.must(b.streams[1].Replay(graph))
				b.must(b.streams[1].Synchronize())
			}
			all, of := v.compare(fmt.Sprintf("%d queries, step %d", queries, step))
			stand, masked = stand+all-of, masked+of
		}
		b.must(graph.Destroy())
	}
	if stand == 0 || masked == 0 {
		t.Errorf("%d drafts stand, %d of the host: these steps test nothing", stand, masked)
	}
}
