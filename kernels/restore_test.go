package kernels

import (
	"errors"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// A restore sets its slot to the state that was encoded, and touches no other slot.
func TestRestoreSetsOneSlot(t *testing.T) {
	g := newRig(t, 1, 8)
	state := SlotState{Init: Init{Slot: 3, Generation: 5, Prompt: 9, Sampling: Sampling{TopK: 4, Seed: 1 << 40}},
		Token: 17, Pages: []int32{4, 2, 9}, History: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}
	staged, mapped, err := g.h.Pinned(4 * int64(state.Words()))
	g.must(err)
	g.must(state.Encode(mapped.Bytes()))
	all := []device.Buffer{g.slots.Params, g.slots.Token, g.slots.BlockTable, g.slots.History, g.slots.Length}
	var want [][]int32
	for _, x := range all {
		for i := range g.h.Int32(x) {
			g.h.Int32(x)[i] = -7
		}
		want = append(want, slices.Clone(g.h.Int32(x)))
	}
	params := state.Init.Params()
	copy(want[0][3*ParamWords:], params[:])
	want[1][3] = 17
	copy(want[2][3*g.slots.Pages:], state.Pages)
	copy(want[3][3*g.slots.Context:], state.History)
	want[4][3] = 10
	op := Restore{Staged: staged, Slots: g.slots, Slot: 3, Pages: 3, Tokens: 10}
	g.must(g.stream.Launch(op))
	g.must(g.stream.Synchronize())
	for i, x := range all {
		if got := g.h.Int32(x); !slices.Equal(got, want[i]) {
			t.Errorf("array %d: %v, wants %v", i, got, want[i])
		}
	}
	for name, change := range map[string]func(*Restore){
		"the trash slot":       func(o *Restore) { o.Slot = g.slots.Count - 1 },
		"too many pages":       func(o *Restore) { o.Pages = g.slots.Pages + 1 },
		"too many tokens":      func(o *Restore) { o.Tokens = g.slots.Context + 1 },
		"less than was staged": func(o *Restore) { o.Tokens++ },
	} {
		bad := op
		change(&bad)
		if err := bad.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
	if err := state.Encode(make([]byte, 4*state.Words()-1)); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("too little memory: %v", err)
	}
}

// BenchmarkSlotState encodes the state of a slot with a history of 100,000 tokens.
func BenchmarkSlotState(b *testing.B) {
	state := SlotState{Pages: make([]int32, 6250), History: make([]int32, 100_000)}
	dst := make([]byte, 4*state.Words())
	for b.Loop() {
		if err := state.Encode(dst); err != nil {
			b.Fatal(err)
		}
	}
}
