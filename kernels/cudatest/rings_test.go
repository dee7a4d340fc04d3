//go:build cuda

package cudatest

import (
	"testing"
	"time"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Of poll.cu.
const (
	pollThreads = 512
	pollWords   = 4 * pollThreads
)

// pollLimit is after how long polling blocks give up, so that a test that has gone wrong ends.
const pollLimit = 20 * time.Second

// pollArgs mirrors PollArgs of poll.cu.
type pollArgs struct {
	at          uint64
	nanoseconds uint64
	overdue     uint64
}

// poll keeps a block on each SM that polls words, as kernels of tagged values do, until they are not 0. It sets overdue if
// they stay 0. Two such blocks would leave an SM no registers for a block of a product beside them.
type poll struct{ words, overdue device.Buffer }

func (poll) Kernel() string    { return "poll" }
func (poll) Check() error      { return nil }
func (poll) Host(*device.Host) {}

// CUDA asks for all shared memory, because an SM cannot change how much it has while a block is there.
func (p poll) CUDA(q *cuda.Queue) error {
	return cuda.Launch(q, "reel_poll", cuda.Grid{X: q.SMs(), Threads: pollThreads, AllShared: true},
		pollArgs{q.Address(p.words), uint64(pollLimit), q.Address(p.overdue)})
}

// ringUser is an op whose kernel reads a ring in shared memory, and its results.
type ringUser struct {
	op  device.Op
	out device.Buffer
}

// results returns what the op leaves, where poison was before.
func (b *both) results(u ringUser) []uint32 {
	b.t.Helper()
	b.onGPU(kernels.Fill{Data: u.out, Value: kernels.Poison}, u.op)
	return read[uint32](b, 1, u.out)
}

// besidePolling launches u up to n times beside polling blocks, until its results are not those that it has alone. It
// returns the number of that launch, or 0, and how many values differ.
func (b *both) besidePolling(u ringUser, n int) (launch, values int) {
	b.t.Helper()
	want := b.results(u)
	defer b.poll()()
	for launch = range n {
		for i, v := range b.results(u) {
			if v != want[i] {
				values++
			}
		}
		if values > 0 {
			return launch + 1, values
		}
	}
	return 0, 0
}

// poll begins to poll on a stream of its own, and returns what ends it. It allocates nothing that must be freed before.
func (b *both) poll() (end func()) {
	b.t.Helper()
	p := poll{b.load(1, make([]byte, 8*pollWords)), b.load(1, make([]byte, 4))}
	s, err := b.g.NewStream()
	b.must(err)
	b.must(s.Launch(p))
	return func() {
		b.t.Helper()
		b.onGPU(kernels.Fill{Data: p.words, Value: 1})
		b.must(s.Destroy())
		if read[uint32](b, 1, p.overdue)[0] != 0 {
			b.t.Fatalf("blocks polled for %v: the kernels between found no room beside them, or took too long", pollLimit)
		}
	}
}

// gates returns gate and up of one row over weights of a format.
func (b *both) gates(format kernels.DType) ringUser {
	const hidden, inner = 4096, 11008
	gate, up, out := b.matrix(format, inner, hidden)[1], b.matrix(format, inner, hidden)[1], b.poisoned(inner)[1]
	x, norm := put(b, b.normal(hidden, 1))[1], put(b, b.normal(hidden, 1))[1]
	return ringUser{kernels.GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: out, T: 1, Eps: 1e-5}, out}
}

// ringFormats are those whose products of one row have a ring that leaves room for other blocks on an SM.
var ringFormats = []kernels.DType{kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1, kernels.Q8_0, kernels.MXFP4,
	kernels.G4_32, kernels.G4_64}

// eachRing calls fn for ops that read rings, with a build of the kernels.
func eachRing(t *testing.T, build string, fn func(b *both, u ringUser)) {
	g := bothOf(t, build).g
	if major, minor := g.Capability(); major != 9 || minor != 0 {
		t.Skip("this test wants a GPU of compute capability 9.0: kernels for others have no rings")
	}
	for _, format := range ringFormats {
		t.Run(formatOf(format).name, func(t *testing.T) { b := bothWith(t, g); fn(b, b.gates(format)) })
	}
}

// A bulk copy does not overwrite a stage of a ring before all of it has been read, even if loads wait long because other
// kernels' blocks keep the SM's load unit busy.
func TestCUDARingsAreReadBeforeTheyAreFilled(t *testing.T) {
	eachRing(t, "polling", func(b *both, u ringUser) {
		if launch, values := b.besidePolling(u, 500); launch > 0 {
			b.t.Errorf("launch %d beside polling blocks: %d values differ from those alone", launch, values)
		}
	})
}

// Without the fence between reads and the arrival that frees a stage, the test above fails.
func TestCUDARingsNoticeUnfencedReads(t *testing.T) {
	eachRing(t, "unfenced", func(b *both, u ringUser) {
		launch, values := b.besidePolling(u, 2000)
		if launch == 0 {
			b.t.Fatal("no value differs in 2,000 launches beside polling blocks")
		}
		b.t.Logf("launch %d: %d values differ", launch, values)
	})
}
