//go:build cuda

package cudatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// rowsOfBoth are numbers of generated rows and of rows of prompts beside them.
type rowsOfBoth struct{ generated, prompts int }

var mixedRows = []rowsOfBoth{{16, 1}, {16, 40}, {16, 128}, {16, 129}, {16, 192}, {16, 224}, {32, 7}, {32, 104},
	{32, 160}, {32, 192}}

// mixedMemory is the rows for which there is memory: sums of a mixed pass take more than those of as few prompt rows.
const mixedMemory = 400

// mixedShape is outputs, columns, and the most work slices. Of mixedShapes slices end in each of the ways that they have: eight, four
// and two to an output tile, whole groups of partial sums, and any K block, within a partial sum too.
type mixedShape struct{ outputs, cols, slices int }

var mixedShapes = []mixedShape{{512, 4096, 132}, {1024, 2176, 132}, {2064, 1152, 132},
	{1536, 1152, 16}, {2576, 2176, 11}, {4112, 1408, 21}, {96, 2048, 1}}

// apart launches ops that each have a part of a mixed pass's rows: op(first, n, class).
func (b *both) apart(generated, rows int, op func(first, n int, class kernels.Class) device.Op) {
	b.t.Helper()
	b.onGPU(op(0, generated, kernels.Decode), op(generated, rows-generated, kernels.Prefill))
}

// Rows of a mixed pass have the bits that they have in passes of their own class.
func TestCUDAMixedRowsHaveTheBitsOfTheirClass(t *testing.T) {
	b := newBoth(t)
	for i, s := range mixedShapes {
		b.mixedRows([]kernels.DType{kernels.BF16, kernels.F16}[i%2], s, mixedRows...)
	}
}

// mixedRows compares gate and up, and a projection, of mixed passes with those of passes of each class.
func (b *both) mixedRows(dtype kernels.DType, s mixedShape, all ...rowsOfBoth) {
	defer func(n int) { tune.MaxWorkSlices = n }(tune.MaxWorkSlices)
	b.t.Helper()
	w, up := b.matrix(dtype, s.outputs, s.cols)[1], b.matrix(dtype, s.outputs, s.cols)[1]
	norm, workspace := put(b, b.normal(s.cols, 1))[1], b.workspaceFor(mixedMemory, s.cols)
	if tune.MaxWorkSlices = s.slices; !kernels.CanMix(w) || !kernels.CanMix(w, up) {
		b.t.Fatalf("%+v has no kernel of mixed passes", s)
	}
	of := func(x device.Buffer, first, n, width int) device.Buffer {
		return x.Slice(int64(4*first*width), int64(4*n*width))
	}
	for _, r := range all {
		rows := r.generated + r.prompts
		x, before := put(b, b.normal(rows*s.cols, 3))[1], b.normal(rows*s.outputs, 1)
		gateUp := kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Out: b.poisoned(rows * s.outputs)[1], T: rows,
			Eps: 1e-5, Workspace: workspace, Class: kernels.Prefill}
		projection := kernels.Projection{W: w, In: x, X: b.load(1, bytesOf(before)), T: rows, Workspace: workspace,
			Class: kernels.Prefill}
		b.apart(r.generated, rows, func(first, n int, class kernels.Class) device.Op {
			op := gateUp
			op.X, op.Out, op.T, op.Class = of(x, first, n, s.cols), of(op.Out, first, n, s.outputs), n, class
			return op
		})
		b.apart(r.generated, rows, func(first, n int, class kernels.Class) device.Op {
			op := projection
			op.In, op.X, op.T, op.Class = of(x, first, n, s.cols), of(op.X, first, n, s.outputs), n, class
			return op
		})
		wantGateUp, wantProjection := read[uint32](b, 1, gateUp.Out), read[uint32](b, 1, projection.X)
		gateUp.Generated, projection.Generated = kernels.Generated(r.generated), kernels.Generated(r.generated)
		for range 3 {
			gateUp.Out, projection.X = b.poisoned(rows * s.outputs)[1], b.load(1, bytesOf(before))
			b.onGPU(gateUp, projection)
			name := fmt.Sprintf("type %d, %+v, %+v", dtype, s, r)
			b.equal(name+": gate and up", read[uint32](b, 1, gateUp.Out), wantGateUp)
			b.equal(name+": projection", read[uint32](b, 1, projection.X), wantProjection)
		}
	}
}

// A layer's ops of a mixed pass, which hand rounded rows on, leave the bits of passes of each class: with attention, both
// projections, and a second layer's gates. The last prompt's rows are one sequence's.
func TestCUDAMixedLayersHaveTheBitsOfTheirClass(t *testing.T) {
	newBoth(t).mixedLayers(mixedRows)
}

// With besideRows generated rows and those of prompts have kernels of attention that run at the same time.
var besideRows = []rowsOfBoth{{16, 224}, {32, 192}, {16, 161}}

// The same with kernels that are delayed at random.
func TestCUDAMixedLayersLate(t *testing.T) {
	bothOf(t, "late").mixedLayers(besideRows)
}

// mixedLayers checks that layers of a mixed pass leave what those of passes of each class leave.
func (b *both) mixedLayers(mixed []rowsOfBoth) {
	b.t.Helper()
	const heads, dim, hidden, inner = 16, 64, 1024, 4096
	for _, kvHeads := range []int{16, 4} {
		for _, r := range mixed {
			rows := r.generated + r.prompts
			a := b.withRun(b.newAttention(kernels.BF16, kernels.BF16, rows, hidden, heads, kvHeads, dim).op[1],
				r.generated+r.prompts/2, min(r.prompts-r.prompts/2, 64))
			l := handedLayer{QKV: a, norm: put(b, b.normal(hidden, 1))[1], work: b.attendWorkspace(rows, heads, dim, 64),
				mid: b.poisoned(rows * inner)[1], gated: b.poisoned(rows * inner)[1],
				attended: b.poisoned(rows * heads * dim)[1], workspace: b.workspaceFor(mixedMemory, hidden), inner: inner,
				output: b.matrix(kernels.BF16, hidden, heads*dim)[1], gate: b.matrix(kernels.BF16, inner, hidden)[1],
				up: b.matrix(kernels.BF16, inner, hidden)[1], down: b.matrix(kernels.BF16, hidden, inner)[1]}
			l.within = kernels.Workspace{Rounded: b.roundedFor(mixedMemory, inner), Partials: l.workspace.Partials}
			start := read[float32](b, 1, a.X)
			run := func(ops func() []device.Op) (results [3][]uint32) {
				l.X = b.load(1, bytesOf(start))
				b.onGPU(kernels.Fill{Data: a.KV.Data, Value: 0x3f803f00}, kernels.Fill{Data: a.Out, Value: kernels.Poison},
					kernels.Fill{Data: l.gated, Value: kernels.Poison}, kernels.Fill{Data: l.mid, Value: kernels.Poison})
				b.onGPU(ops()...)
				return [3][]uint32{read[uint32](b, 1, l.X), read[uint32](b, 1, l.gated), read[uint32](b, 1, a.KV.Data)}
			}
			want := run(func() []device.Op {
				return slices.Concat(l.ops(0, r.generated, true), l.prefillOps(r.generated, r.prompts))
			})
			for range 3 {
				got := run(func() []device.Op { return l.mixedOps(r.generated, rows) })
				for i, of := range []string{"residual stream", "gates", "keys and values"} {
					b.equal(fmt.Sprintf("%d KV heads, %+v: %s", kvHeads, r, of), got[i], want[i])
				}
			}
		}
	}
}

// withRun returns a with n rows from first on of one sequence, at its positions 0 to n-1.
func (b *both) withRun(a kernels.QKV, first, n int) kernels.QKV {
	slots, positions := read[int32](b, 1, a.Rows.Slot), read[int32](b, 1, a.Rows.Position)
	for i := range n {
		slots[first+i], positions[first+i] = slots[first], int32(i)
	}
	a.Rows.Slot, a.Rows.Position = put(b, slots)[1], put(b, positions)[1]
	return a
}

// prefillOps returns ops over n rows of prompts from number first on.
func (l handedLayer) prefillOps(first, n int) []device.Op {
	return withClass(l.ops(first, n, true), 0)
}

// mixedOps returns those over all rows, of which the first are generated.
func (l handedLayer) mixedOps(generated, rows int) []device.Op {
	return withClass(l.ops(0, rows, true), kernels.Generated(generated))
}

// withClass makes ops those of a prefill pass with so many generated rows.
func withClass(ops []device.Op, generated kernels.Generated) []device.Op {
	for i, op := range ops {
		switch op := op.(type) {
		case kernels.QKV:
			op.Class, op.Generated = kernels.Prefill, generated
			ops[i] = op
		case kernels.Attend:
			op.Class, op.Generated = kernels.Prefill, generated
			ops[i] = op
		case kernels.Projection:
			op.Class, op.Generated = kernels.Prefill, generated
			ops[i] = op
		case kernels.GateUp:
			op.Class, op.Generated = kernels.Prefill, generated
			ops[i] = op
		}
	}
	return ops
}

// A mixed product for which there is no kernel is refused.
func TestCUDAMixedProductsAreRefused(t *testing.T) {
	b := newBoth(t)
	w, x := b.matrix(kernels.BF16, 512, 2048)[1], put(b, b.normal(300*2048, 1))[1]
	narrow := b.matrix(kernels.BF16, 512, 512)[1]
	out := b.poisoned(300 * 512)[1]
	for name, op := range map[string]kernels.Projection{
		"8 generated rows": {W: w, T: 100, Generated: 8}, "too many rows of prompts": {W: w, T: 16 + 225, Generated: 16},
		"too few columns": {W: narrow, T: 100, Generated: 16},
		"a bias":          {W: w, T: 100, Generated: 16, Bias: put(b, b.normal(512, 1))[1]},
	} {
		op.In, op.X, op.Class, op.Workspace = x, out, kernels.Prefill, b.workspaceFor(300, 2048)
		if err := b.streams[1].Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkMixed replays all products of a mixed pass, and those of its two parts one after another.
func BenchmarkMixed(bench *testing.B) {
	for _, s := range shapes {
		p := newProducts(newBoth(bench), s)
		for _, r := range []struct{ generated, prompts int }{{16, 16}, {16, 64}, {16, 104}, {16, 128}, {16, 160}, {16, 192},
			{16, 224}, {32, 32}, {32, 128}, {32, 192}} {
			for _, kind := range []string{"qkv", "output", "gateup", "down", "all"} {
				ops := func(rows int, prefill bool) []device.Op {
					all, _, _ := p.ops(kind, rows, prefill)
					return withoutHead(all)
				}
				decode, prefill := p.median(ops(r.generated, false)), p.median(ops(r.prompts, true))
				mixed := p.median(withClass(ops(r.generated+r.prompts, true), kernels.Generated(r.generated)))
				fmt.Printf("%s %d+%d %-6s: decode %.0f us, prefill %.0f, sum %.0f, mixed %.0f\n", s.name, r.generated,
					r.prompts, kind, decode, prefill, decode+prefill, mixed)
			}
		}
	}
}

func withoutHead(ops []device.Op) []device.Op {
	return slices.DeleteFunc(ops, func(op device.Op) bool { _, is := op.(kernels.Head); return is })
}

// median returns the median time of replays, in microseconds.
func (p *products) median(ops []device.Op) float64 {
	const runs = 5
	p.replay(ops...)
	return float64(p.replayTimes(runs, ops...)[runs/2]) / float64(time.Microsecond)
}

// Products over a list of rows and padding have the bits of those over one row, whatever the kernel.
func TestCUDAProductsOfAListHaveTheBitsOfOneRow(t *testing.T) {
	b := newBoth(t)
	const n, rows, hidden, inner = 64, 300, 1040, 1408
	gate, up := b.matrix(kernels.BF16, inner, hidden)[1], b.matrix(kernels.BF16, inner, hidden)[1]
	down, norm := b.matrix(kernels.BF16, hidden, inner)[1], put(b, b.normal(hidden, 1))[1]
	x, in := put(b, b.normal(rows*hidden, 3))[1], put(b, b.normal(rows*inner, 1))[1]
	before := b.normal(n*hidden, 1)
	for _, count := range []int{1, 16, 17, 33, 64} {
		index := slices.Repeat([]int32{-1}, n)
		for i := range count {
			index[i] = b.r.Int32N(rows)
		}
		list := put(b, index)[1]
		gateUp := kernels.GateUp{X: x, RowIndex: list, Norm: norm, Gate: gate, Up: up, T: n, Eps: 1e-5}
		projection := kernels.Projection{W: down, In: in, RowIndex: list, T: n}
		gateUp.Workspace, projection.Workspace = b.workspaceFor(mixedMemory, hidden), b.workspaceFor(mixedMemory, inner)
		gateUp.Out, projection.X = b.poisoned(n * inner)[1], b.load(1, bytesOf(before))
		b.onGPU(gateUp, projection)
		gotGateUp, gotProjection := read[uint32](b, 1, gateUp.Out), read[uint32](b, 1, projection.X)
		for i := range count {
			one, add := gateUp, projection
			one.T, one.RowIndex = 1, list.Slice(int64(4*i), 4)
			one.Out = b.poisoned(inner)[1]
			add.T, add.RowIndex, add.X = 1, one.RowIndex, b.load(1, bytesOf(before[i*hidden:(i+1)*hidden]))
			b.onGPU(one, add)
			name := fmt.Sprintf("row %d of %d, in a list of %d: ", i, count, n)
			b.equal(name+"gate and up", gotGateUp[i*inner:(i+1)*inner], read[uint32](b, 1, one.Out))
			b.equal(name+"projection", gotProjection[i*hidden:(i+1)*hidden], read[uint32](b, 1, add.X))
		}
		b.equal("what padding leaves", gotProjection[count*hidden:], viewOf[uint32](bytesOf(before))[count*hidden:])
	}
}

// BenchmarkMixedPass replays the layers of a mixed pass with attention: 16 sequences at 600 positions beside 224 tokens of
// a prompt, the first of them at position 1,000. It does so without attention, and with that of one kind of rows alone.
func BenchmarkMixedPass(bench *testing.B) {
	const generated, prompts, context, pageTokens = 16, 224, 2048, 16
	p := newProducts(newBoth(bench), shapes[0])
	pages := context / pageTokens
	slots, positions := make([]int32, generated+prompts), make([]int32, generated+prompts)
	for i := range slots {
		slots[i], positions[i] = int32(i+1), 600
		if i >= generated {
			slots[i], positions[i] = 0, int32(1000+i-generated)
		}
	}
	p.a.KV.Pages, p.a.KV.PageTokens = (generated+2)*pages, pageTokens
	p.a.KV.Data = p.load(1, make([]byte, p.a.KV.PageBytes()*int64(p.a.KV.Pages)))
	p.a.Rows.Slot, p.a.Rows.Position = put(p.both, slots)[1], put(p.both, positions)[1]
	p.a.Slots = kernels.Slots{Count: generated + 2, Pages: pages, Context: context,
		BlockTable: put(p.both, counted((generated+2)*pages))[1]}
	p.a.RoPE = put(p.both, p.normal(context*p.dim, 1))[1]
	p.work = p.attendWorkspace(benchRows, p.heads, p.dim, context)
	of := func(attend func(kernels.Attend) (device.Op, bool)) []device.Op {
		ops, _, _ := p.ops("pass", generated+prompts, true)
		var all []device.Op
		for _, op := range withClass(withoutHead(ops), generated) {
			if a, is := op.(kernels.Attend); is {
				if op, is = attend(a); !is {
					continue
				}
			}
			if _, is := op.(kernels.GatherRows); is {
				break // what follows is of sampled rows
			}
			all = append(all, op)
		}
		return all
	}
	rows := func(x device.Buffer, width int) device.Buffer {
		return x.Slice(int64(4*generated*width), int64(4*prompts*width))
	}
	for name, attend := range map[string]func(kernels.Attend) (device.Op, bool){
		"no attention": func(a kernels.Attend) (device.Op, bool) { return a, false },
		"both":         func(a kernels.Attend) (device.Op, bool) { return a, true },
		"generated": func(a kernels.Attend) (device.Op, bool) {
			a.T, a.Class, a.Generated = generated, kernels.Decode, 0
			return a, true
		},
		"prompts": func(a kernels.Attend) (device.Op, bool) {
			a.T, a.Generated = prompts, 0
			a.Q, a.Out = rows(a.Q, p.heads*p.dim), rows(a.Out, p.heads*p.dim)
			a.Rows.Slot, a.Rows.Position = rows(a.Rows.Slot, 1), rows(a.Rows.Position, 1)
			return a, true
		},
	} {
		fmt.Printf("7B %d+%d, attention of %s: %.0f us\n", generated, prompts, name, p.median(of(attend)))
	}
}
