package kernels

import (
	"errors"
	"reflect"
	"testing"

	"reel.internal/reel/kernels/device"
)

func TestStageResolvesRowsOnTheDevice(t *testing.T) {
	g := newRig(t, 1, 8)
	g.stage(Step{Inits: []Init{{Slot: 3, Prompt: 2}}, Rows: []Row{{3, 0, 11}, {3, 1, 12}}, Samples: []int32{1},
		Pages: []PageEntry{{3, 0, 5}}}, 2, 1)
	g.h.Int32(g.slots.Token)[3] = 77 // as Sample leaves it
	g.stage(Step{Rows: []Row{{3, FromDevice, FromDevice}}, Samples: []int32{0}}, 4, 3)
	slots, positions, tokens := g.h.Int32(g.rows.Slot), g.h.Int32(g.rows.Position), g.h.Int32(g.rows.Token)
	if slots[0] != 3 || positions[0] != 2 || tokens[0] != 77 {
		t.Errorf("row is slot %d, position %d, token %d; wants 3, 2, 77", slots[0], positions[0], tokens[0])
	}
	trash := int32(g.slots.Count - 1)
	for i := 1; i < 4; i++ {
		if slots[i] != trash || positions[i] != 0 {
			t.Errorf("padding row %d is slot %d, position %d; wants %d, 0", i, slots[i], positions[i], trash)
		}
	}
	if s := g.h.Int32(g.rows.Sample)[:3]; s[0] != 0 || s[1] != -1 || s[2] != -1 {
		t.Errorf("samples %v, wants 0 and padding", s)
	}
	if got := g.h.Int32(g.slots.Length)[3]; got != 3 {
		t.Errorf("length %d, wants 3", got)
	}
	if got := g.h.Int32(g.slots.History)[3*rigContext:][:3]; got[0] != 11 || got[1] != 12 || got[2] != 77 {
		t.Errorf("history %v", got)
	}
	if got := g.h.Int32(g.slots.BlockTable)[3*g.slots.Pages]; got != 5 {
		t.Errorf("block table begins with page %d, wants 5", got)
	}
}

// The device counts the steps itself and finds each descriptor in the ring.
func TestStageFindsItsDescriptorInTheRing(t *testing.T) {
	g := newRig(t, 1, 8)
	for i := range int32(3*rigRing + 1) {
		g.stage(Step{Rows: []Row{{0, 0, 100 + i}}}, 1, 0)
		if got := g.h.Int32(g.rows.Token)[0]; got != 100+i {
			t.Fatalf("step %d staged token %d, wants %d", i, got, 100+i)
		}
	}
}

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	l := StepLayout{MaxRows: 2, MaxSamples: 1}
	dst := make([]byte, 4*l.Words())
	for name, s := range map[string]Step{
		"rows":    {Rows: make([]Row, 3)},
		"samples": {Samples: make([]int32, 2)},
		"inits":   {Inits: make([]Init, 2)},
		"pages":   {Rows: make([]Row, 2), Pages: make([]PageEntry, 3+MaxMoves)},
		"moves":   {Rows: make([]Row, 1), Pages: make([]PageEntry, 2+MaxMoves)},
	} {
		if err := l.Encode(dst, &s); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("too many %s: %v, wants ErrBadShape", name, err)
		}
	}
	if err := l.Encode(dst[1:], &Step{}); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("short destination: %v, wants ErrBadShape", err)
	}
}

// A pass is launched alike whatever the most rows of a step are, and its shared memory holds what a descriptor may have.
func TestStageDoesNotDependOnTheMostRows(t *testing.T) {
	for _, rows := range []int{1, 8, 416} {
		few := Stage{Layout: StepLayout{MaxRows: 416, MaxSamples: 9}, Slots: Slots{Count: 10}, T: rows, N: 1}
		many := few
		many.Layout.MaxRows = 1536
		if a, b := few.sharedBytes(), many.sharedBytes(); a != b {
			t.Errorf("%d rows take %d bytes with memory for 416 rows and %d for 1,536", rows, a, b)
		}
		step := Step{Rows: make([]Row, rows), Pages: make([]PageEntry, rows+MaxMoves)}
		if err := few.Layout.Encode(make([]byte, 4*few.Layout.Words()), &step); err != nil {
			t.Errorf("%d rows with the most pages: %v", rows, err)
		}
		if least := 4 * (headWords + rowWords*rows + 2*10 + len(step.Pages)); few.sharedBytes() < least {
			t.Errorf("%d rows take %d bytes, want at least %d", rows, few.sharedBytes(), least)
		}
	}
}

// A descriptor holds every field of Sampling.
func TestSamplingRoundTrip(t *testing.T) {
	want := Sampling{Temperature: 0.7, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1, Logprobs: 5,
		Seed: 0xfedcba9876543210, PresencePenalty: 0.5, FrequencyPenalty: -0.25, Masked: true}
	with := want
	with.Biases = make([]Bias, 7)
	dst := make([]byte, 4*ParamWords)
	params := (&Init{Sampling: with}).Params()
	(&wordWriter{dst: dst}).put(params[:]...)
	words := make([]int32, ParamWords)
	for i := range words {
		words[i] = int32(uint32(dst[4*i]) | uint32(dst[4*i+1])<<8 | uint32(dst[4*i+2])<<16 | uint32(dst[4*i+3])<<24)
	}
	if got, biases := readSampling(words[2:]); !reflect.DeepEqual(got, want) || biases != 7 {
		t.Errorf("%+v came back as %+v with %d biases, wants 7", want, got, biases)
	}
}
