package kernels

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// shuffledDelays returns delays of streams that differ from rank to rank.
func shuffledDelays(rank int) func() time.Duration {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(uint64(rank), 29))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(r.IntN(300)) * time.Microsecond
	}
}

// newRanks makes simulated ranks; fault is planted in the last one.
func newRanks(t *testing.T, n int, patience time.Duration, fault device.ExchangeFault) *device.HostRanks {
	t.Helper()
	r, err := device.NewHostRanks(n, patience, func(rank int) device.HostOptions {
		return device.HostOptions{Workers: 1, Delay: shuffledDelays(rank)}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.Hosts()[n-1].Faults().PlantExchange(fault)
	return r
}

// exchangeRig is the memory of exchanges between simulated ranks.
type exchangeRig struct {
	t     *testing.T
	dev   *device.HostRanks
	s     device.Stream
	width int
	rows  int
	x     []float32 // what X holds
	bias  []float32
	op    Exchange
}

func newExchangeRig(t *testing.T, dev *device.HostRanks, rows, width int) *exchangeRig {
	t.Helper()
	g := &exchangeRig{t: t, dev: dev, width: width, rows: rows}
	n := len(dev.Hosts())
	alloc := func(elements int) device.Buffer {
		b, err := dev.Alloc(4 * int64(elements))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	g.op = Exchange{Part: alloc(rows * PartOf(width, n)), All: alloc(rows * width), X: alloc(rows * width),
		Bias: alloc(width), Signals: dev.Capabilities().Ranks.Signals, T: rows, Width: width,
		PartCols: PartOf(width, n), Ranks: n}
	var err error
	if g.s, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	g.x, g.bias = make([]float32, rows*width), make([]float32, width)
	for i := range g.bias {
		g.bias[i] = float32(i) / 7
	}
	for _, h := range dev.Hosts() {
		copy(h.Float32(g.op.Bias), g.bias)
	}
	return g
}

// fresh writes new parts, cut from whole rows that it returns. Nothing runs.
func (g *exchangeRig) fresh() (whole []float32) {
	whole = make([]float32, g.rows*g.width)
	for i := range whole {
		whole[i] = rand.Float32() - 0.5
	}
	n := len(g.dev.Hosts())
	for rank, h := range g.dev.Hosts() {
		cols, start := PartOf(g.width, n), PartStart(g.width, n, rank)
		for t := range g.rows {
			copy(h.Float32(g.op.Part)[t*cols:(t+1)*cols], whole[t*g.width+start:])
		}
	}
	return whole
}

// expect adds what one GPU would add to X.
func (g *exchangeRig) expect(whole []float32) {
	for i := range g.x {
		g.x[i] = g.x[i] + g.bias[i%g.width] + whole[i]
	}
}

// compare compares the memory of every rank with what one GPU would have.
func (g *exchangeRig) compare(whole []float32) error {
	for rank, h := range g.dev.Hosts() {
		if !slices.Equal(h.Float32(g.op.All), whole) || !slices.Equal(h.Float32(g.op.X), g.x) {
			return fmt.Errorf("rank %d has other values", rank)
		}
	}
	return nil
}

func (g *exchangeRig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// Every rank gets the columns of all, eagerly and from graphs that are replayed again and again.
func TestExchangeGivesEveryRankAllColumns(t *testing.T) {
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	for _, n := range []int{2, 3, 4, 8} {
		for _, width := range []int{1, 16, 40, 257} {
			g := newExchangeRig(t, newRanks(t, n, 0, device.NoExchangeFault), 3, width)
			whole := g.fresh()
			g.must(g.s.Launch(g.op))
			g.must(g.s.Synchronize())
			g.expect(whole)
			if err := g.compare(whole); err != nil {
				t.Fatalf("%d ranks, %d columns: %v", n, width, err)
			}
			g.must(g.s.BeginCapture())
			g.must(g.s.Launch(g.op))
			graph, err := g.s.EndCapture()
			g.must(err)
			exec, err := graph.Instantiate()
			g.must(err)
			for range 5 {
				whole = g.fresh()
				g.must(g.s.Replay(exec))
				g.must(g.s.Synchronize())
				g.expect(whole)
				if err := g.compare(whole); err != nil {
					t.Fatalf("%d ranks, %d columns, replayed: %v", n, width, err)
				}
			}
			g.must(device.GiveBack(exec.Destroy, graph.Destroy, g.s.Destroy))
		}
	}
}

// A rank that never raises its flag, or raises that of an exchange long ago, ends the device within the patience.
func TestExchangeThatIsNotAnsweredEndsTheDevice(t *testing.T) {
	for _, fault := range []device.ExchangeFault{device.MissingFlag, device.WrongEpoch} {
		g := newExchangeRig(t, newRanks(t, 4, 200*time.Millisecond, fault), 2, 64)
		g.fresh()
		g.must(g.s.Launch(g.op))
		if err := g.s.Synchronize(); !errors.Is(err, device.ErrSticky) || !errors.Is(err, device.ErrRanks) {
			t.Errorf("fault %d: %v", fault, err)
		}
		if err := g.s.Launch(g.op); !errors.Is(err, device.ErrSticky) {
			t.Errorf("fault %d: a lost device takes an op: %v", fault, err)
		}
	}
}

// A rank that writes to memory which nobody reads is found by comparison.
func TestExchangeToAStalePeerIsSeen(t *testing.T) {
	g := newExchangeRig(t, newRanks(t, 2, 0, device.StalePeer), 2, 64)
	whole := g.fresh()
	g.must(g.s.Launch(g.op))
	g.must(g.s.Synchronize())
	g.expect(whole)
	if err := g.compare(whole); err == nil {
		t.Error("a part that did not arrive went unnoticed")
	}
}

func TestPartsCoverAllColumnsOnce(t *testing.T) {
	for _, width := range []int{1, 15, 16, 17, 64, 100, 4096, 11008, 32003} {
		for ranks := 1; ranks <= device.MaxRanks; ranks++ {
			next := 0
			for rank := range ranks {
				begin, end, start := Exchange{Width: width, PartCols: PartOf(width, ranks)}.own(rank)
				inPart := begin >= start && end <= start+PartOf(width, ranks)
				if start != PartStart(width, ranks, rank) || begin != next || end < begin || begin < end && !inPart {
					t.Fatalf("%d columns, rank %d of %d: [%d, %d), cols from %d", width, rank, ranks, begin, end, start)
				}
				next = end
			}
			if next != width {
				t.Fatalf("%d columns of %d with %d ranks", next, width, ranks)
			}
		}
	}
}

// An exchange in a product is of the part that it leaves, and adds what a projection stores; parts that are completed in
// place are of one size.
func TestOpsRefuseExchangesOfOtherParts(t *testing.T) {
	g := newExchangeRig(t, newRanks(t, 2, 0, device.NoExchangeFault), 3, 64)
	r := newRig(t, 1, 64)
	w, _ := r.weight(BF16, 32, 64)
	alloc := func(n int) device.Buffer {
		b, err := g.dev.Alloc(4 * int64(n))
		g.must(err)
		return b
	}
	w.Data = alloc(32 * 64 / 2)
	right := g.op
	right.PartCols, right.Part = 32, alloc(3*32)
	other := right
	other.Part = alloc(3 * 32)
	rows := right
	rows.T = 2
	down := Projection{W: w, In: alloc(3 * 64), X: right.Part, T: 3, Store: true, Spread: right}
	if err := down.Check(); err != nil {
		t.Error(err)
	}
	adds, biased, elsewhere, fewer := down, down, down, down
	adds.Store, biased.Bias, elsewhere.Spread, fewer.Spread = false, alloc(32), other, rows
	gate := GateUp{X: alloc(3 * 64), Norm: alloc(64), Gate: w, Up: w, Out: right.Part, T: 3, Spread: other}
	for _, op := range []device.Op{adds, biased, elsewhere, fewer, gate, Complete{X: alloc(3 * 63), T: 3, Width: 63, Ranks: 2,
		Signals: g.op.Signals}, Complete{X: alloc(3 * 64), T: 3, Width: 64, Signals: g.op.Signals}} {
		if err := op.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", op.Kernel(), err)
		}
	}
	g.must(g.s.Destroy())
}
