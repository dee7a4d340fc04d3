package kernels

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// drafterRig has a verify step of three groups of four rows staged, and a fourth group of padding: slot 2 with three
// drafts, past its prompt; slot 5 with one, right behind its prompt; slot 1 with none, further on.
func drafterRig(t *testing.T) (g *rig, rows Rows) {
	t.Helper()
	g = newRig(t, 1, 8)
	trash := int32(NoSlot)
	step := Step{Inits: []Init{{Slot: 2, Prompt: 3}, {Slot: 5, Prompt: 4}, {Slot: 1, Prompt: 1}}, Rows: []Row{
		{2, 7, 50}, {2, FromDevice, FromDraft}, {2, FromDevice, FromDraft}, {2, FromDevice, FromDraft},
		{5, 4, 51}, {5, FromDevice, FromDraft}, {trash, 0, 0}, {trash, 0, 0},
		{1, 9, 900}, {trash, 0, 0}, {trash, 0, 0}, {trash, 0, 0}}}
	for i := range step.Rows {
		step.Samples = append(step.Samples, int32(i))
	}
	g.layout.MaxSamples = 16
	var err error
	g.rows, err = AllocRows(g.h, g.layout)
	g.must(err)
	g.ring, g.mapped, err = g.h.Pinned(4 * int64(rigRing*g.layout.Words()))
	g.must(err)
	for slot := range int32(8) { // the tokens so far: 10·slot + position
		for p := range int32(rigContext) {
			g.h.Int32(g.slots.History)[slot*rigContext+p] = 10*slot + p
		}
	}
	g.stage(step, 16, 16)
	rows, err = AllocRows(g.h, StepLayout{MaxRows: 16, MaxSamples: 8})
	g.must(err)
	return g, rows
}

// rowSeen is a row as the ops see it.
type rowSeen struct{ slot, position, token int32 }

func (g *rig) seen(rows Rows, n int) (all []rowSeen) {
	for t := range n {
		all = append(all, rowSeen{g.h.Int32(rows.Slot)[t], g.h.Int32(rows.Position)[t], g.h.Int32(rows.Token)[t]})
	}
	return all
}

// For the first draft each sequence has two rows: its last token, and the one before unless that is a prompt token.
// Each later draft has the row of the draft before.
func TestDraftRows(t *testing.T) {
	g, rows := drafterRig(t)
	op := DraftRows{Of: g.rows, Slots: g.slots, Rows: rows, T: 16, Queries: 4, Draft: 1, Vocab: 800}
	g.launch(op)
	pad := rowSeen{slot: int32(g.slots.Count - 1)}
	want := []rowSeen{{2, 6, 26}, {2, 7, 50}, {5, 4, 51}, {5, 4, 51}, {1, 8, 18}, {1, 9, 0}, pad, pad}
	if got := g.seen(rows, 8); !slices.Equal(got, want) {
		t.Errorf("first draft: %v, wants %v", got, want)
	}
	if got := g.h.Int32(rows.Sample)[:4]; !slices.Equal(got, []int32{1, 3, 5, -1}) {
		t.Errorf("samples %v", got)
	}
	single := op
	single.Single = true
	g.launch(single)
	pad.position = 1
	if got, want := g.seen(rows, 4), []rowSeen{{2, 7, 50}, {5, 4, 51}, {1, 9, 0}, pad}; !slices.Equal(got, want) {
		t.Errorf("first draft of an EAGLE-3 head: %v, wants %v", got, want)
	}
	if got := g.h.Int32(rows.Sample)[:4]; !slices.Equal(got, []int32{0, 1, 2, -1}) {
		t.Errorf("samples %v", got)
	}
	pad.position = 0
	g.h.Int32(g.rows.Token)[1], g.h.Int32(g.rows.Token)[5] = 60, 801
	op.Draft = 2
	g.launch(op)
	if got, want := g.seen(rows, 4), []rowSeen{{2, 8, 60}, {5, 5, 0}, pad, pad}; !slices.Equal(got, want) {
		t.Errorf("second draft: %v, wants %v", got, want)
	}
	if got := g.h.Int32(rows.Sample)[:4]; !slices.Equal(got, []int32{0, 1, 2, -1}) {
		t.Errorf("samples %v", got)
	}
	op.Draft, op.Queries = 0, 1
	g.launch(op)
	want = g.seen(g.rows, 16)
	want[5].token, want[8].token = 0, 0
	if got := g.seen(rows, 16); !slices.Equal(got, want) {
		t.Errorf("all rows: %v, wants %v", got, want)
	}
	for _, bad := range []DraftRows{{Queries: 5, Draft: 1}, {Queries: 4, Draft: 4}, {Queries: 4, Draft: -1},
		{Queries: 1, Draft: 2}} {
		op.Queries, op.Draft = bad.Queries, bad.Draft
		if err := op.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("draft %d of groups of %d: %v", op.Draft, op.Queries, err)
		}
	}
}

// The most probable token that the model has becomes the draft, of rows that are no padding; not a number is least
// probable of all.
func TestPropose(t *testing.T) {
	g, _ := drafterRig(t)
	nan := float32(math.NaN())
	logits, err := g.h.Alloc(4 * 4 * 5)
	g.must(err)
	copy(g.h.Float32(logits), []float32{
		nan, 1, 3, 3, 9, // the last one is no token of the model
		2, nan, 1, 0, 0,
		0, 0, 7, 0, 0,
		nan, nan, nan, nan, nan,
	})
	before, history := g.seen(g.rows, 16), slices.Clone(g.h.Int32(g.slots.History))
	g.launch(Propose{Logits: logits, Rows: g.rows, Slots: g.slots, T: 16, Queries: 4, Draft: 1, Cols: 5, Vocab: 4})
	before[1].token, before[5].token = 2, 0
	history[2*rigContext+8], history[5*rigContext+5] = 2, 0
	if got := g.seen(g.rows, 16); !slices.Equal(got, before) {
		t.Errorf("rows %v, wants %v", got, before)
	}
	if !slices.Equal(g.h.Int32(g.slots.History), history) {
		t.Error("history differs")
	}
	tokens, err := g.h.Load(bytesOfInts(40, 41, 42, 43, 44))
	g.must(err)
	g.launch(Propose{Logits: logits, Tokens: tokens, Rows: g.rows, Slots: g.slots, T: 16, Queries: 4, Draft: 1, Cols: 5,
		Vocab: 4})
	if got := []int32{g.seen(g.rows, 16)[1].token, g.h.Int32(g.slots.History)[5*rigContext+5]}; !slices.Equal(got,
		[]int32{42, 40}) {
		t.Errorf("mapped tokens %v", got)
	}
	if token := mostProbable([]float32{nan, nan}); token != 0 {
		t.Errorf("of no numbers: %d", token)
	}
	for _, bad := range []Propose{{Queries: 4, Draft: 0, Vocab: 4}, {Queries: 4, Draft: 4, Vocab: 4},
		{Queries: 4, Draft: 1, Vocab: 6}} {
		bad.Logits, bad.Rows, bad.Slots, bad.T, bad.Cols = logits, g.rows, g.slots, 16, 5
		if err := bad.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// bytesOfInts returns the bytes of int32 values.
func bytesOfInts(values ...int32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}
