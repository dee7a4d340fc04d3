package kernels

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// Attention hands its results over in the type of the product's rows, or in the form of products of few rows over
// quantised weights if there is a kernel for its heads.
func TestHeadsHandoverType(t *testing.T) {
	bf16, q4, q8 := Weight{DType: BF16}, Weight{DType: Q4_K}, Weight{DType: Q8_0}
	for _, test := range []struct {
		class   Class
		dim     int
		weights []Weight
		want    DType
	}{
		{Decode, 128, []Weight{q4}, Q4_K}, {Decode, 64, []Weight{q8}, Q8_0}, {Decode, 256, []Weight{q8}, Q8_0},
		{Decode, 112, []Weight{q4}, Q4_K}, {Decode, 32, []Weight{q4}, 0}, {Decode, 96, []Weight{q4}, 0},
		{Decode, 120, []Weight{q4}, 0}, {Decode, 128, []Weight{bf16}, BF16}, {Decode, 128, []Weight{q4, bf16}, 0},
		{Decode, 512, []Weight{q4}, 0}, {Decode, 512, []Weight{bf16}, 0}, {Prefill, 512, []Weight{bf16}, 0},
		{Prefill, 128, []Weight{bf16}, BF16}, {Prefill, 128, []Weight{{DType: MXFP4}}, 0},
	} {
		if got := test.class.HeadsHandoverType(test.dim, test.weights...); got != test.want {
			t.Errorf("%+v: type %d", test, got)
		}
	}
}

// A hand-over to products over quantised weights for which there is no kernel is refused.
func TestAttendRefusesHandoversToCodes(t *testing.T) {
	for name, change := range map[string]func(*Attend){
		"a head size": func(o *Attend) { o.KV.HeadDim = 96 },
		"a prompt":    func(o *Attend) { o.Class = Prefill },
		"a position":  func(o *Attend) { o.First = 1 },
		"an exchange": func(o *Attend) { o.Spread.Ranks = 2 },
	} {
		o := Attend{T: 4, Heads: 32, KV: KV{HeadDim: 128, Heads: 8}, Handover: Handover{DType: Q4_K}}
		if err := o.checkCodes(); err != nil {
			t.Fatal(err)
		}
		if change(&o); !errors.Is(o.checkCodes(), device.ErrBadShape) {
			t.Errorf("%s: %v", name, o.checkCodes())
		}
	}
}
