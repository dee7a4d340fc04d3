//go:build cuda

package engine

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// lateShapes are steps that together use every GEMM variant.
var lateShapes = []graphs.Key{graphs.Decode(1), graphs.Decode(8), graphs.Decode(12),
	graphs.Prefill(1), graphs.Prefill(7), graphs.Prefill(16),
	graphs.Prefill(40), graphs.Prefill(100), graphs.Prefill(200),
	graphs.VerifyStep(1, 3), graphs.VerifyStep(1, 8), graphs.Decode(1).Following()}

// outcomes runs each of the shapes several times, alternately eagerly and by a graph, with these kernels,
// and returns each step's outcome: with lookup as drafter, then with an EAGLE-3 head, then, with choose, with experts.
// serial launches each kernel after the one before it has ended.
func outcomes(t *testing.T, images gpu.Images, serial, choose bool, times int) (all [][]byte) {
	for _, drafter := range []DraftKind{DraftLookup, DraftModel} {
		all = append(all, outcomesWith(t, images, serial, times, drafter, nil)...)
	}
	if !choose {
		return all
	}
	experts := model.Experts{Count: 16, Used: 4, Inner: 64, Normalise: true}
	return append(all, outcomesWith(t, images, serial, times, DraftLookup, &experts)...)
}

func outcomesWith(t *testing.T, images gpu.Images, serial bool, times int, drafter DraftKind,
	experts *model.Experts) (all [][]byte) {
	t.Helper()
	d, err := gpu.New(0, images)
	if err != nil {
		t.Fatal(err)
	}
	if serial {
		d.Serialize()
	}
	c := microConfig()
	c.Hidden, c.Inner, c.Heads, c.HeadDim, c.Layers, c.Vocab, c.Experts = 256, 512, 8, 32, 3, 1000, experts
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o := defaults()
	o.Chunk, o.MaxBatch, o.Pages, o.KVType, o.Precapture = 200, 12, 96, kernels.BF16, []int{1, 7, 16, 40, 100, 200}
	o.Draft, o.DraftTokens = drafter, 7
	if head := gpuHead(c); drafter == DraftModel {
		if o.DraftModel, err = model.Load(d, head, randomTensors{head}, func(float64) {}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range lateShapes {
		if k == graphs.Decode(1).Following() && drafter != DraftModel {
			continue
		}
		trial := &trial{e: e, key: k, size: size(k)}
		for i := range times {
			plan := graphs.Plan{Key: k}
			if i%2 == 1 {
				if plan = e.pool.Acquire(k); plan.Kind != graphs.Exact {
					t.Fatalf("%s has no graph of its own", k)
				}
			}
			err := errors.Join(trial.Prepare(), trial.Run(plan))
			out, failed := trial.Outcome()
			if err = errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			all = append(all, out)
		}
	}
	if err := errors.Join(e.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

// kernelsOf returns the kernels of this name that make late-kernels built.
func kernelsOf(t *testing.T, name string) *cuda.Images {
	t.Helper()
	images, err := cuda.OpenImages(os.DirFS("../../../.build/cuda/" + name + "/images"))
	if err != nil {
		t.Fatalf("this test needs the kernels of make late-kernels: %v", err)
	}
	return images
}

// differing returns the number of outcomes that differ from want.
func differing(got, want [][]byte) (n int) {
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			n++
		}
	}
	return n
}

// PDL: a kernel that starts early reads nothing before pdl_wait that the kernel before it writes. Kernels with
// inject_delay give the same bits as kernels that run one after another. Without pdl_wait they give others; experts
// would read addresses from a choice that nobody has made, so they are left out there.
func TestGPUDependentLaunchWaits(t *testing.T) {
	const times = 6
	want := outcomes(t, cuda.Kernels, true, true, times)
	if n := differing(outcomes(t, cuda.Kernels, false, true, times), want); n > 0 {
		t.Errorf("%d of %d steps differ with dependent launch", n, len(want))
	}
	late := kernelsOf(t, "late")
	if n := differing(outcomes(t, late, false, true, times), want); n > 0 {
		t.Errorf("%d of %d steps differ when kernels are late", n, len(want))
	}
	unwaited := outcomes(t, kernelsOf(t, "unwaited"), false, false, times)
	n := differing(unwaited, want[:len(unwaited)])
	t.Logf("%d of %d steps differ when kernels do not wait", n, len(unwaited))
	if n == 0 {
		t.Error("kernels that do not wait give the same bits, so this test proves nothing")
	}
}
