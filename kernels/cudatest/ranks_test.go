//go:build cuda

package cudatest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	images "reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// ranksRig is the memory of exchanges between all GPUs of the machine, and a stream.
type ranksRig struct {
	t   testing.TB
	n   int
	dev *device.Ranks
	set *device.RankSet
	s   device.Stream
}

// links are the ways in which GPUs reach each other, with a name for each.
var links = map[string]cuda.Link{"peers": cuda.PeerLink, "host": cuda.HostLink}

// newRanksRig opens up to eight GPUs until the test ends. With one GPU the test is skipped.
func newRanksRig(t testing.TB, link cuda.Link) *ranksRig {
	t.Helper()
	return newRanksRigOf(t, link, images.Kernels)
}

// newRanksRigOf is newRanksRig with these kernels.
func newRanksRigOf(t testing.TB, link cuda.Link, kernels cuda.Images) *ranksRig {
	t.Helper()
	g := &ranksRig{t: t}
	var gpus []*cuda.Device
	for len(gpus) < device.MaxRanks {
		d, err := cuda.New(len(gpus), kernels)
		if errors.Is(err, device.ErrBadBuffer) {
			break
		}
		g.must(err)
		t.Cleanup(func() { g.must(d.Close()) })
		gpus = append(gpus, d)
	}
	if g.n = len(gpus); g.n < 2 {
		t.Skip("this test wants two NVIDIA GPUs that can address each other's memory")
	}
	var err error
	g.dev, err = cuda.NewRanks(gpus, link, nil)
	g.must(err)
	g.set = g.dev.Capabilities().Ranks
	g.s, err = g.dev.NewStream()
	g.must(err)
	t.Cleanup(func() { g.must(g.s.Destroy()) })
	return g
}

func (g *ranksRig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// load copies values of its own to each GPU.
func (g *ranksRig) load(of func(rank int) []float32) device.Buffer {
	g.t.Helper()
	var data [][]byte
	for rank := range g.n {
		data = append(data, bytesOf(of(rank)))
	}
	b, err := g.set.LoadEach(data)
	g.must(err)
	g.t.Cleanup(func() { g.must(g.dev.Free(b)) })
	return b
}

// filled returns n copies of v.
func filled(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

// fresh returns an exchange of random values with the rows that every GPU has to get.
func (g *ranksRig) fresh(rows, width int, adds bool) (op kernels.Exchange, whole []float32) {
	whole = make([]float32, rows*width)
	for i := range whole {
		whole[i] = rand.Float32() - 0.5
	}
	cols := kernels.PartOf(width, g.n)
	op = kernels.Exchange{Signals: g.set.Signals, T: rows, Width: width, PartCols: cols, Ranks: g.n,
		All: g.load(func(int) []float32 { return filled(rows*width, 9) }),
		Part: g.load(func(rank int) (part []float32) {
			for t := range rows {
				part = append(part, whole[t*width+kernels.PartStart(width, g.n, rank):][:cols]...)
			}
			return part
		})}
	if adds {
		op.X = g.load(func(int) []float32 { return filled(rows*width, 3) })
		op.Bias = g.load(func(int) []float32 { return filled(width, 0.25) })
	}
	return op, whole
}

// compare compares a buffer of every GPU with the values that it should have.
func (g *ranksRig) compare(name string, b device.Buffer, want []float32) {
	g.t.Helper()
	got := make([]float32, len(want))
	for rank := range g.n {
		g.must(g.set.Read(rank, bytesOf(got), b))
		for i := range want {
			if got[i] != want[i] {
				g.t.Fatalf("%s of GPU %d: element %d is %v, wants %v", name, rank, i, got[i], want[i])
			}
		}
	}
}

// Every GPU gets the columns of all, eagerly and from a graph of many exchanges that is replayed again and again.
func TestCUDAExchange(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) { exchangesEqualTheirFormula(t, link) })
	}
}

func exchangesEqualTheirFormula(t *testing.T, link cuda.Link) {
	g := newRanksRig(t, link)
	for _, rows := range []int{1, 7, 400} {
		for _, width := range []int{32, 257, 4096, 11008} {
			if link == cuda.HostLink && width%2 != 0 {
				continue // odd widths are refused
			}
			for _, adds := range []bool{false, true} {
				op, whole := g.fresh(rows, width, adds)
				g.must(g.s.Launch(op))
				g.must(g.s.Synchronize())
				if !adds {
					g.compare("all", op.All, whole)
					continue
				}
				x := filled(len(whole), 3)
				for i := range x {
					x[i] = (x[i] + 0.25) + whole[i]
				}
				g.compare("x", op.X, x)
			}
		}
	}
}

// A graph of exchanges in turn adds up the same on every GPU however often it is replayed.
func TestCUDAExchangeReplays(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) { exchangesReplay(t, link) })
	}
}

func exchangesReplay(t *testing.T, link cuda.Link) {
	g := newRanksRig(t, link)
	const exchanges, replays = 64, 50
	var ops [2]kernels.Exchange
	var whole [2][]float32
	ops[0], whole[0] = g.fresh(1, 4096, true)
	ops[1], whole[1] = g.fresh(3, 1000, true)
	exec := g.captured(exchanges, []device.Op{ops[0], ops[1]})
	for range replays {
		g.must(g.s.Replay(exec))
	}
	g.must(g.s.Synchronize())
	for i, op := range ops {
		x := filled(len(whole[i]), 3)
		for range exchanges / 2 * replays {
			for j := range x {
				x[j] = (x[j] + 0.25) + whole[i][j]
			}
		}
		g.compare("x", op.X, x)
	}
}

// captured returns a graph of n ops, those of list in turn.
func (g *ranksRig) captured(n int, list []device.Op) device.Exec {
	g.t.Helper()
	runtime.LockOSThread() // a capture must end on the thread that began it
	defer runtime.UnlockOSThread()
	g.must(g.s.BeginCapture())
	for i := range n {
		g.must(g.s.Launch(list[i%len(list)]))
	}
	graph, err := g.s.EndCapture()
	g.must(err)
	exec, err := graph.Instantiate()
	g.must(err)
	g.t.Cleanup(func() { g.must(errors.Join(exec.Destroy(), graph.Destroy())) })
	g.must(g.s.Upload(exec))
	return exec
}

// randomWeight returns a packed weight of which each GPU has a part of its own.
func (g *ranksRig) randomWeight(rows, cols int) kernels.Weight {
	g.t.Helper()
	var each [][]byte
	for range g.n {
		part := make([]byte, 2*rows*cols)
		for i := 0; i < len(part); i += 2 { // bfloat16 between 2^-7 and 2^-5
			part[i], part[i+1] = byte(rand.Uint32()), 0x3c|byte(rand.Uint32())&0x81
		}
		each = append(each, part)
	}
	data, err := g.set.LoadEach(each)
	g.must(err)
	g.t.Cleanup(func() { g.must(g.dev.Free(data)) })
	return kernels.Weight{Data: data, DType: kernels.BF16, Layout: kernels.Fragments, Rows: rows, Cols: cols}
}

// shared copies the same random values to all GPUs, as often as is said.
func (g *ranksRig) shared(n, copies int) (all []device.Buffer) {
	g.t.Helper()
	values := make([]float32, n)
	for i := range values {
		values[i] = rand.Float32() - 0.5
	}
	for range copies {
		all = append(all, g.load(func(int) []float32 { return values }))
	}
	return all
}

// A product that gives its results to all GPUs in one kernel leaves the bits of the product and an exchange after it,
// on every GPU, also when it is repeated: the halves of an inbox take turns.
func TestCUDASpreadEqualsProductAndExchange(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			g := newRanksRig(t, link)
			for _, rows := range []int{1, 2, 8, 13} {
				for _, width := range []int{512, 4096, 11008} {
					g.spreadGateUp(rows, 1024, width)
					g.spreadProjection(rows, 1024, width)
				}
			}
		})
	}
}

func (g *ranksRig) spreadGateUp(rows, cols, width int) {
	g.t.Helper()
	part := kernels.PartOf(width, g.n)
	all := g.shared(rows*width, 2)
	op := kernels.GateUp{X: g.shared(rows*cols, 1)[0], Norm: g.shared(cols, 1)[0], Gate: g.randomWeight(part, cols),
		Up: g.randomWeight(part, cols), Out: g.shared(rows*part, 1)[0], T: rows, Eps: 1e-5, Class: kernels.Decode}
	exchange := kernels.Exchange{Part: op.Out, Signals: g.set.Signals, T: rows, Width: width, PartCols: part, Ranks: g.n}
	to := func(i int) kernels.Exchange { exchange.All = all[i]; return exchange }
	spread := op
	spread.Spread = to(1)
	g.alike("inner", all, rows*width, op, to(0), spread)
}

func (g *ranksRig) spreadProjection(rows, cols, width int) {
	g.t.Helper()
	part := kernels.PartOf(width, g.n)
	x := g.shared(rows*width, 2)
	op := kernels.Projection{W: g.randomWeight(part, cols), In: g.shared(rows*cols, 1)[0], X: g.shared(rows*part, 1)[0],
		T: rows, Class: kernels.Decode, Store: true}
	exchange := kernels.Exchange{Part: op.X, All: g.shared(rows*width, 1)[0], Bias: g.shared(width, 1)[0],
		Signals: g.set.Signals, T: rows, Width: width, PartCols: part, Ranks: g.n}
	to := func(i int) kernels.Exchange { exchange.X = x[i]; return exchange }
	spread := op
	spread.Spread = to(1)
	g.alike("x", x, rows*width, op, to(0), spread)
}

// alike launches ops three times, and compares after each the buffers of n elements that they leave.
func (g *ranksRig) alike(name string, left []device.Buffer, n int, ops ...device.Op) {
	g.t.Helper()
	for range 3 {
		for _, op := range ops {
			g.must(g.s.Launch(op))
		}
		g.must(g.s.Synchronize())
		g.compareBuffers(name, left, n)
	}
}

// compareBuffers compares two buffers on all GPUs, bit for bit.
func (g *ranksRig) compareBuffers(name string, b []device.Buffer, n int) {
	g.t.Helper()
	want, got := make([]float32, n), make([]float32, n)
	g.must(g.set.Read(0, bytesOf(want), b[0]))
	for rank := range g.n {
		for i := range b {
			g.must(g.set.Read(rank, bytesOf(got), b[i]))
			if !bytes.Equal(bytesOf(got), bytesOf(want)) {
				g.t.Fatalf("%s, %d elements: GPU %d has other bits in buffer %d", name, n, rank, i)
			}
		}
	}
}

// BenchmarkSpread measures gates and a down projection of Llama-2-7B with the exchanges of their results, in a graph of
// 32 of each.
func BenchmarkSpread(b *testing.B) {
	benchmarks(b, func(b *testing.B, of func(*testing.B) *ranksRig) {
		for _, rows := range []int{1, 8} {
			b.Run(fmt.Sprint(rows), func(b *testing.B) {
				g := of(b)
				inner, hidden := kernels.PartOf(11008, g.n), kernels.PartOf(4096, g.n)
				gate := kernels.GateUp{X: g.shared(rows*4096, 1)[0], Norm: g.shared(4096, 1)[0],
					Gate: g.randomWeight(inner, 4096), Up: g.randomWeight(inner, 4096), Out: g.shared(rows*inner, 1)[0], T: rows,
					Eps: 1e-5, Class: kernels.Decode}
				down := kernels.Projection{W: g.randomWeight(hidden, 11008), In: g.shared(rows*11008, 1)[0],
					X: g.shared(rows*hidden, 1)[0], T: rows, Class: kernels.Decode, Store: true}
				gates := kernels.Exchange{Part: gate.Out, All: down.In, Signals: g.set.Signals, T: rows, Width: 11008,
					PartCols: inner, Ranks: g.n}
				adds := kernels.Exchange{Part: down.X, All: g.shared(rows*4096, 1)[0], X: gate.X, Signals: g.set.Signals,
					T: rows, Width: 4096, PartCols: hidden, Ranks: g.n}
				together := func(gate kernels.GateUp, down kernels.Projection) []device.Op {
					gate.Spread, down.Spread = gates, adds
					return []device.Op{gate, down}
				}
				for name, ops := range map[string][]device.Op{"alone": {gate, down}, "then": {gate, gates, down, adds},
					"spread": together(gate, down)} {
					b.ReportMetric(g.timed(b, ops), name+"-us")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}

// timed returns the microseconds of ops in a graph of 32 times all of them.
func (g *ranksRig) timed(b *testing.B, ops []device.Op) float64 {
	b.Helper()
	const times = 32
	exec := g.captured(times*len(ops), ops)
	g.must(g.s.Replay(exec))
	g.must(g.s.Synchronize())
	begun := time.Now()
	for range 20 {
		g.must(g.s.Replay(exec))
	}
	g.must(g.s.Synchronize())
	return float64(time.Since(begun).Nanoseconds()) / 1000 / (20 * times)
}

// benchmarks runs a benchmark for each link, and opens the GPUs once for each.
func benchmarks(b *testing.B, run func(b *testing.B, of func(*testing.B) *ranksRig)) {
	for name, link := range links {
		b.Run(name, func(b *testing.B) {
			all := newRanksRig(b, link)
			run(b, func(b *testing.B) *ranksRig {
				g := *all
				g.t = b
				return &g
			})
		})
	}
}

// BenchmarkExchange measures an exchange in a graph of 64, by rows and columns.
func BenchmarkExchange(b *testing.B) {
	benchmarks(b, func(b *testing.B, of func(*testing.B) *ranksRig) {
		for _, rows := range []int{1, 8, 64, 400} {
			for _, width := range []int{4096, 11008, 32000} {
				b.Run(fmt.Sprintf("%dx%d", rows, width), func(b *testing.B) {
					g := of(b)
					first, _ := g.fresh(rows, width, true)
					second, _ := g.fresh(rows, width, false)
					b.ReportMetric(g.timed(b, []device.Op{first, second})/2, "us/exchange")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	})
}

// BenchmarkRanksReplay measures how long one thread takes to launch a graph of 300 exchanges on all GPUs, and how long
// that takes on the first one alone: as much later the last GPU begins.
func BenchmarkRanksReplay(b *testing.B) {
	g := newRanksRig(b, cuda.PeerLink)
	op, _ := g.fresh(1, 4096, true)
	exec := g.captured(300, []device.Op{op})
	var launch time.Duration
	for range b.N {
		begun := time.Now()
		g.must(g.s.Replay(exec))
		launch += time.Since(begun)
		g.must(g.s.Synchronize())
	}
	b.ReportMetric(float64(launch.Nanoseconds())/1000/float64(b.N)/float64(g.n), "us/launch")
	b.ReportMetric(0, "ns/op")
}
