//go:build cuda

package cudatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// quantised is a format of weights. A block's scales are at the bytes in halves or floats; minimums are those that are
// added, of the size of a code.
type quantised struct {
	dtype                   kernels.DType
	name                    string
	elements                int
	halves, minimums        []int
	floats, zeros, exponent bool // a float32 at byte 0; a zero at byte 4; an exponent at byte 0
	size                    float64
}

// size is the root mean square of a value whose scale is 1, over random codes and scales.
var quantisedFormats = []quantised{
	{dtype: kernels.Q4_0, name: "Q4_0", elements: 32, halves: []int{0}, size: 4.6},
	{dtype: kernels.Q4_1, name: "Q4_1", elements: 32, halves: []int{0}, minimums: []int{2}, size: 10},
	{dtype: kernels.Q5_0, name: "Q5_0", elements: 32, halves: []int{0}, size: 9.2},
	{dtype: kernels.Q5_1, name: "Q5_1", elements: 32, halves: []int{0}, minimums: []int{2}, size: 20},
	{dtype: kernels.Q8_0, name: "Q8_0", elements: 32, halves: []int{0}, size: 74},
	{dtype: kernels.Q4_K, name: "Q4_K", elements: 256, halves: []int{0, 2}, size: 320},
	{dtype: kernels.Q5_K, name: "Q5_K", elements: 256, halves: []int{0, 2}, size: 640},
	{dtype: kernels.Q6_K, name: "Q6_K", elements: 256, halves: []int{208}, size: 1370},
	{dtype: kernels.IQ4_XS, name: "IQ4_XS", elements: 256, halves: []int{0}, size: 1200},
	{dtype: kernels.MXFP4, name: "MXFP4", elements: 32, exponent: true, size: 5},
	{dtype: kernels.F8, name: "F8", elements: 128, floats: true, size: 100},
	{dtype: kernels.G4_32, name: "G4_32", elements: 32, floats: true, zeros: true, size: 6.5},
	{dtype: kernels.G4_64, name: "G4_64", elements: 64, floats: true, zeros: true, size: 6.5},
	{dtype: kernels.G4_128, name: "G4_128", elements: 128, floats: true, zeros: true, size: 6.5},
}

// blocks returns n elements in random blocks, with values of about scale.
func (b *both) blocks(f quantised, n int, scale float64) []byte {
	data := make([]byte, f.dtype.Bytes(int64(n)))
	for i := range data {
		data[i] = byte(b.r.Uint32())
	}
	each := int(f.dtype.Bytes(int64(f.elements)))
	for at := 0; at < len(data); at += each {
		f.scale(data[at:at+each], func() float64 { return scale / f.size * (0.5 + b.r.Float64()) }, b.r.NormFloat64)
	}
	return data
}

// scale writes the scales of a block.
func (f *quantised) scale(block []byte, random, normal func() float64) {
	for _, at := range f.halves {
		binary.LittleEndian.PutUint16(block[at:], toHalf(random()))
	}
	for _, at := range f.minimums {
		binary.LittleEndian.PutUint16(block[at:], toHalf(random()*f.size*normal()))
	}
	if f.floats {
		binary.LittleEndian.PutUint32(block, math.Float32bits(float32(random())))
	}
	if f.zeros {
		block[4] &= 15
	}
	if f.exponent {
		_, e := math.Frexp(random())
		block[0] = byte(e + 127)
	}
	if f.dtype == kernels.F8 {
		for i := range block[4:] {
			block[4+i] &^= 8 // no NaN
		}
	}
}

// toHalf returns the bits of a binary16 close to v, subnormal ones too.
func toHalf(v float64) uint16 {
	sign := uint16(0)
	if v < 0 {
		sign, v = 0x8000, -v
	}
	fraction, e := math.Frexp(v) // of 0.5 to 1
	if e < -13 {
		return sign | uint16(v*0x1p24)
	}
	return sign | uint16(e+14)<<10 | uint16((2*fraction-1)*1024)
}

// formatOf returns the format of a DType, or nil.
func formatOf(t kernels.DType) *quantised {
	if i := slices.IndexFunc(quantisedFormats, func(f quantised) bool { return f.dtype == t }); i >= 0 {
		return &quantisedFormats[i]
	}
	return nil
}

// The GPU packs any bytes as the host does.
func TestCUDAOpQuantisedPack(t *testing.T) {
	b := newBoth(t)
	for _, f := range quantisedFormats {
		for _, c := range [][2]int{{1, f.elements}, {37, 3 * f.elements}, {16, 4096}} {
			data := make([]byte, f.dtype.Bytes(int64(c[0]*c[1])))
			for i := range data {
				data[i] = byte(b.r.Uint32())
			}
			src, dst := put(b, data), b.poisoned(int(kernels.PackedBytes(f.dtype, c[0], c[1])/4))
			b.run(func(on int) device.Op {
				return kernels.Pack{Src: src[on], Dst: dst[on], DType: f.dtype, Rows: c[0], Cols: c[1]}
			})
			b.same(fmt.Sprintf("%s, %v", f.name, c), dst)
		}
	}
}

// Rows of the embedding are the reference's values, bit for bit.
func TestCUDAOpQuantisedEmbed(t *testing.T) {
	b := newBoth(t)
	for _, f := range quantisedFormats {
		for _, hidden := range []int{f.elements, 5 * f.elements, 4096} {
			const vocab, rows = 45, 33
			table := b.matrix(f.dtype, vocab, hidden)
			tokens := make([]int32, rows)
			for i := range tokens {
				tokens[i] = b.r.Int32N(vocab)
			}
			tokens[0] = vocab - 1
			token, x := put(b, tokens), b.poisoned(rows*hidden)
			b.run(func(on int) device.Op {
				return kernels.Embed{Table: table[on], Rows: kernels.Rows{Token: token[on]}, X: x[on], T: rows}
			})
			b.same(fmt.Sprintf("%s, %d columns", f.name, hidden), x)
		}
	}
}

func TestCUDAOpQuantisedProducts(t *testing.T) {
	for i, f := range quantisedFormats {
		for j, rows := range []int{1, 3, 8, 9, 16, 23, 64, 70} {
			for k, c := range []classAndWorkspace{{false, false}, {false, true}, {true, true}} {
				t.Run(fmt.Sprintf("%s/%d/%s", f.name, rows, []string{"decode", "rounded", "prefill"}[k]), func(t *testing.T) {
					b := newBoth(t)
					in := f.elements * (1 + b.r.IntN(2048/f.elements))
					if (i+j)%3 == 0 {
						in = []int{4096, 11008, 2048}[b.r.IntN(3)]
					}
					b.products(f.dtype, rows, in, 1+b.r.IntN(100), []classAndWorkspace{c})
				})
			}
		}
	}
}

// Heads of q, k and v in one format and in two or three.
func TestCUDAOpQuantisedQKV(t *testing.T) {
	for i, rows := range []int{1, 2, 8, 11, 40, 1, 4, 70} {
		b := newBoth(t)
		dim, kvHeads, hidden := []int{32, 64, 96, 128}[i%4], 1+b.r.IntN(3), 256*(1+b.r.IntN(8))
		f := quantisedFormats[b.r.IntN(len(quantisedFormats))]
		a := b.newAttention(f.dtype, []kernels.DType{kernels.BF16, kernels.F32, kernels.F16}[i%3], rows, hidden,
			kvHeads*(1+i%3), kvHeads, dim)
		if i%2 == 1 {
			v := b.matrix(kernels.Q6_K, kvHeads*dim, hidden)
			a.op[0].V, a.op[1].V = v[0], v[1]
		}
		if i%4 == 3 {
			k := b.matrix(kernels.Q8_0, kvHeads*dim, hidden)
			a.op[0].K, a.op[1].K = k[0], k[1]
		}
		t.Logf("%d rows of %d, %s", rows, hidden, f.name)
		b.qkv(classes[i%len(classes)], a)
	}
}

// A row's result has the same bits alone and in any batch, and in both classes.
func TestCUDAQuantisedProductsAreBatchInvariant(t *testing.T) {
	b := newBoth(t)
	for i, f := range quantisedFormats {
		in, width := []int{256, 2304, 4096}[i%3], 96
		w, up := b.matrix(f.dtype, width, in)[1], b.matrix(f.dtype, width, in)[1]
		norm := put(b, b.normal(in, 1))[1]
		checkInvariance(b, "projection, "+f.name, in, width,
			func(x, out device.Buffer, workspace kernels.Workspace, rows int, class kernels.Class) device.Op {
				return kernels.Projection{W: w, In: x, X: out, Workspace: workspace, T: rows, Class: class}
			})
		checkInvariance(b, "gateup, "+f.name, in, width,
			func(x, out device.Buffer, workspace kernels.Workspace, rows int, class kernels.Class) device.Op {
				return kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Out: out, Workspace: workspace, T: rows,
					Class: class, Eps: 1e-5}
			})
	}
}

func TestCUDAQuantisedRowIndex(t *testing.T) {
	b := newBoth(t)
	for i, f := range quantisedFormats {
		of := [][2]int{{1, 63}, {7, 1}, {8, 0}, {9, 4}, {0, 3}}[i%5]
		b.rowIndexProducts(f.dtype, of[0], of[1], 512)
	}
}

// Weights that share units must have one format; a quantised weight and another do not mix.
func TestCUDAQuantisedRefuses(t *testing.T) {
	b := newBoth(t)
	const inner, hidden = 32, 256
	x, norm, out := put(b, b.normal(hidden, 1))[1], put(b, b.powers(hidden))[1], b.poisoned(inner)[1]
	load := func(d kernels.DType) kernels.Weight { return b.matrix(d, inner, hidden)[1] }
	for _, d := range []kernels.DType{kernels.Q6_K, kernels.BF16} {
		err := b.streams[1].Launch(kernels.GateUp{X: x, Norm: norm, Gate: load(kernels.Q4_K), Up: load(d), Out: out,
			T: 1, Eps: 1e-5})
		if !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), "--device host") {
			t.Errorf("Q4_K and format %d: %v", d, err)
		}
	}
}

// BenchmarkQuantisedProducts replays the products of all layers with weights of one format. Up to 8 rows come without
// a ring in shared memory, and with it in those products that have one.
func BenchmarkQuantisedProducts(bench *testing.B) {
	defer func(ring bool) { tune.CodesRing = ring }(tune.CodesRing)
	for _, s := range shapes {
		for _, name := range []string{"BF16", "Q4_0", "Q4_K", "Q6_K", "Q8_0", "F8", "G4_128"} {
			format := kernels.BF16
			if i := slices.IndexFunc(quantisedFormats, func(f quantised) bool { return f.name == name }); i >= 0 {
				format = quantisedFormats[i].dtype
			}
			bench.Run(s.name+"/"+name, func(bench *testing.B) {
				p := newProductsOf(newBoth(bench), s, format)
				for _, T := range []int{1, 2, 4, 8, 16, 32, 64} {
					rings := []bool{false, true}
					if (name != "Q4_0" && name != "Q8_0") || T > 8 {
						rings = rings[1:]
					}
					for _, tune.CodesRing = range rings {
						fmt.Printf("%s, ring %t:\n", name, tune.CodesRing)
						for _, kind := range []string{"qkv", "output", "gateup", "down", "head", "all"} {
							p.measure(kind, T, false)
						}
					}
				}
			})
		}
	}
}
