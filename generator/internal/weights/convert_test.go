package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// conversionFile opens testdata/conversion.safetensors, which conversion.py writes: mapped, or copied to the heap.
func conversionFile(t testing.TB, mapped bool) *Checkpoint {
	t.Helper()
	data, err := os.ReadFile("testdata/conversion.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	var files fs.FS = single(data)
	if mapped {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, singleName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		files = os.DirFS(dir)
	}
	c, err := Open(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// part returns a tensor of a case; the zero Tensor if it has none.
func part(c *Checkpoint, name string) Tensor {
	x, _ := c.Tensor(name)
	return x
}

// converts makes the matrix of each case.
var converts = map[string]func(c *Checkpoint, name string) (Tensor, error){
	"float8_rows": float8Case(0), "float8_one": float8Case(0), "float8_tiles": float8Case(128),
	"float8_tiles_bf16": float8Case(128),
	"packed":            packedCase, "packed_zeros": packedCase, "packed_rows": packedCase, "packed_order": packedCase, "packed_act_order": packedCase,
	"packed_plain_zeros": packedCase,
	"gptq_act_order":     columnsCase(Int4{Layout: Int4Columns, ZerosLessOne: true}),
	"gptq":               columnsCase(Int4{Layout: Int4Columns, ZerosLessOne: true}),
	"gptq_v2":            columnsCase(Int4{Layout: Int4Columns}),
	"gptq_symmetric":     columnsCase(Int4{Layout: Int4Columns, ZerosLessOne: true, Symmetric: true}),
	// Some tools write the zeros of v2 and say v1.
	"gptq_symmetric_v2": columnsCase(Int4{Layout: Int4Columns, ZerosLessOne: true, Symmetric: true}),
	"gptq_order":        columnsCase(Int4{Layout: Int4Columns, ZerosLessOne: true}),
	"awq":               columnsCase(Int4{Layout: Int4Interleaved}), "awq_32": columnsCase(Int4{Layout: Int4Interleaved}),
	"mxfp4": func(c *Checkpoint, name string) (Tensor, error) {
		return Microscaling4(part(c, name+".weight_packed"), part(c, name+".weight_scale"))
	},
}

func float8Case(side int) func(*Checkpoint, string) (Tensor, error) {
	return func(c *Checkpoint, name string) (Tensor, error) {
		return Float8(part(c, name+".weight"), part(c, name+".weight_scale"), side)
	}
}

func packedCase(c *Checkpoint, name string) (Tensor, error) {
	return Int4{Layout: Int4Rows, Codes: part(c, name+".weight_packed"), Scales: part(c, name+".weight_scale"),
		Zeros: part(c, name+".weight_zero_point"), Order: part(c, name+".weight_g_idx"),
		Shape: part(c, name+".weight_shape")}.Tensor()
}

func columnsCase(q Int4) func(*Checkpoint, string) (Tensor, error) {
	return func(c *Checkpoint, name string) (Tensor, error) {
		q := q
		q.Codes, q.Scales = part(c, name+".qweight"), part(c, name+".scales")
		q.Zeros, q.Order = part(c, name+".qzeros"), part(c, name+".g_idx")
		return q.Tensor()
	}
}

// decoded returns the values of blocks, as package kernels describes them.
func decoded(d DType, data []byte) (values []float32) {
	n, size := d.Block()
	for ; len(data) > 0; data = data[size:] {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(data))
		for i := range n {
			switch d {
			case F8:
				values = append(values, scale*float8Value(data[4+i]))
			case MXFP4:
				code := data[1+i%16] >> (i / 16 * 4) & 15
				v := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7] * (1 - float64(code>>3*2))
				if code == 8 {
					v = math.Copysign(0, -1)
				}
				values = append(values, float32(math.Ldexp(v, int(data[0])-127)))
			default:
				code := data[5+i/32*16+i%16] >> (i % 32 / 16 * 4) & 15
				values = append(values, scale*(float32(code)-float32(data[4])))
			}
		}
	}
	return values
}

func float8Value(code byte) float32 {
	v := math.Ldexp(1+float64(code&7)/8, int(code>>3&15)-7)
	switch {
	case code&127 == 127:
		v = math.NaN()
	case code>>3&15 == 0:
		v = math.Ldexp(float64(code&7)/8, -6)
	}
	return float32(math.Copysign(v, float64(1)-float64(code>>7)*2))
}

// Each layout gives the values that numpy computes, bit for bit, whole and in parts of any rows. NaN equals NaN.
func TestConversions(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		testConversions(t, conversionFile(t, mapped))
	}
}

func testConversions(t *testing.T, c *Checkpoint) {
	for name, make := range converts {
		x, err := make(c, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		values, rows := part(c, name+".values"), x.Shape[0]
		first := rows - values.Shape[0]
		for _, n := range []int{values.Shape[0], 1, 5} {
			for at := first; at < rows; at += n {
				compareRows(t, name, x, at, min(n, rows-at), values, at-first)
			}
		}
		if x.SourceBytes() == 0 || !strings.HasPrefix(x.Conversion.Sources[0].Name, name) {
			t.Errorf("%s: its sources are %v", name, x.Conversion.Sources)
		}
		x.Drop()
		compareRows(t, name+", dropped", x, first, rows-first, values, 0)
	}
}

// present returns how many of the whole pages of a mapped tensor this process has in memory. (Linux: pagemap.)
func present(t *testing.T, x Tensor) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip("needs /proc/self/pagemap")
	}
	defer f.Close()
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(&x.Data[0]))
	for at := (begin + page - 1) / page; (at+1)*page <= begin+uintptr(len(x.Data)); at++ {
		var entry [8]byte
		if _, err := f.ReadAt(entry[:], int64(at*8)); err != nil {
			t.Fatal(err)
		}
		n += int(entry[7] >> 7)
	}
	return n
}

// Drop gives back the pages that a conversion has read.
func TestDrop(t *testing.T) {
	c := conversionFile(t, true)
	x, err := converts["float8_rows"](c, "float8_rows")
	if err != nil {
		t.Fatal(err)
	}
	codes := x.Conversion.Sources[0]
	if err := x.Conversion.Rows(make([]byte, x.Shape[0]*x.DType.Bytes(x.Shape[1])), 0); err != nil {
		t.Fatal(err)
	}
	before := present(t, codes)
	if x.Drop(); before < 7 || present(t, codes) != 0 {
		t.Errorf("%d pages are in memory, then %d", before, present(t, codes))
	}
}

// compareRows compares n rows, from row first on, with rows of values from row at on.
func compareRows(t *testing.T, name string, x Tensor, first, n int, values Tensor, at int) {
	t.Helper()
	blocks := make([]byte, n*x.DType.Bytes(x.Shape[1]))
	for i := range blocks {
		blocks[i] = 0xa5
	}
	if err := x.Conversion.Rows(blocks, first); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	cols := x.Shape[1]
	for i, got := range decoded(x.DType, blocks) {
		if x.Conversion.Order != nil {
			i = i/cols*cols + int(x.Conversion.Order[i%cols])
		}
		want := values.Float(at*cols + i)
		if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("%s: row %d, column %d is %v, wants %v", name, first+i/cols, i%cols, got, want)
		}
	}
}

// A block is the largest whose columns have one scale.
func TestInt4Blocks(t *testing.T) {
	c := conversionFile(t, true)
	for name, want := range map[string]DType{"packed": G4_128, "packed_zeros": G4_64, "packed_rows": G4_128,
		"packed_order": G4_32, "gptq_v2": G4_32, "gptq_order": G4_64, "awq_32": G4_32, "gptq_act_order": G4_64, "packed_act_order": G4_32} {
		x, err := converts[name](c, name)
		if err != nil || x.DType != want || (x.Conversion.Order != nil) != strings.Contains(name, "act") {
			t.Errorf("%s: %v, %v, wants %v", name, x.DType, err, want)
		}
	}
}

// spoilt returns a copy of a tensor whose data change writes.
func spoilt(x Tensor, change func(data []byte)) Tensor {
	x.Data = append([]byte{}, x.Data...)
	change(x.Data)
	return x
}

// What does not fit is refused, by the tensor's name.
func TestConversionsRefuse(t *testing.T) {
	c := conversionFile(t, true)
	gptq := Int4{Layout: Int4Columns, Codes: part(c, "gptq.qweight"), Scales: part(c, "gptq.scales"),
		Zeros: part(c, "gptq.qzeros"), Order: part(c, "gptq.g_idx")}
	packed := Int4{Codes: part(c, "packed.weight_packed"), Scales: part(c, "packed.weight_scale"),
		Shape: part(c, "packed.weight_shape")}
	put := func(at int, v int32) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint32(data[4*at:], uint32(v)) }
	}
	for name, test := range map[string]struct {
		change func(q *Int4)
		base   Int4
		want   error
		text   string
	}{
		"negative group":  {func(q *Int4) { q.Order = spoilt(q.Order, put(7, -1)) }, gptq, ErrQuantised, "group -1"},
		"group too large": {func(q *Int4) { q.Order = spoilt(q.Order, put(7, 2)) }, gptq, ErrQuantised, "group 2 of 2"},
		"act-order":       {func(q *Int4) { q.Order = spoilt(q.Order, put(7, 1)) }, gptq, ErrActOrder, "desc_act"},
		"short order":     {func(q *Int4) { q.Order.Shape = []int{255} }, gptq, ErrQuantised, "g_idx"},
		"float order":     {func(q *Int4) { q.Order.DType = F32 }, gptq, ErrQuantised, "g_idx"},
		"float codes":     {func(q *Int4) { q.Codes.DType = F32 }, gptq, ErrQuantised, "qweight"},
		"no codes":        {func(q *Int4) { q.Codes.Shape = []int{0, 16} }, gptq, ErrQuantised, "qweight"},
		"scales of bytes": {func(q *Int4) { q.Scales.DType = U8 }, gptq, ErrQuantised, "scales"},
		"flat scales":     {func(q *Int4) { q.Scales.Shape = []int{32} }, gptq, ErrQuantised, "scales"},
		"no groups":       {func(q *Int4) { q.Scales.Shape = []int{0, 16} }, gptq, ErrQuantised, "scales"},
		"odd groups":      {func(q *Int4) { q.Order, q.Scales.Shape = Tensor{}, []int{3, 16} }, gptq, ErrQuantised, "scales"},
		"small groups":    {func(q *Int4) { q.Order, q.Scales.Shape, q.Zeros = Tensor{}, []int{16, 16}, Tensor{} }, gptq, ErrQuantised, "groups of 16"},
		"few zeros":       {func(q *Int4) { q.Zeros.Shape = []int{2, 1} }, gptq, ErrQuantised, "qzeros"},
		"rows":            {func(q *Int4) { q.Codes.Shape = []int{32, 12} }, gptq, ErrQuantised, "multiple of 8"},
		"other shape":     {func(q *Int4) { q.Shape = spoilt(q.Shape, put(2, 128)) }, packed, ErrQuantised, "weight_shape"},
		"long shape":      {func(q *Int4) { q.Shape.Shape = []int{3} }, packed, ErrQuantised, "weight_shape"},
	} {
		q := test.base
		test.change(&q)
		if _, err := q.Tensor(); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, wants %v naming %q", name, err, test.want, test.text)
		}
	}
	codes, scale := part(c, "float8_rows.weight"), part(c, "float8_rows.weight_scale")
	narrow, long, grid := codes, scale, scale
	narrow.Shape, long.Shape, grid.Shape = []int{144, 255}, []int{145, 1}, []int{2, 2}
	for name, x := range map[string][2]Tensor{"columns": {narrow, scale}, "scales": {codes, long}, "grid": {codes, grid},
		"codes": {scale, scale}, "types": {codes, codes}} {
		if _, err := Float8(x[0], x[1], 0); !errors.Is(err, ErrQuantised) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fours, exponents := part(c, "mxfp4.weight_packed"), part(c, "mxfp4.weight_scale")
	narrow = fours
	narrow.Shape = []int{16, 8}
	for name, x := range map[string][2]Tensor{"columns": {narrow, exponents}, "codes": {scale, exponents},
		"exponents": {fours, fours}} {
		if _, err := Microscaling4(x[0], x[1]); !errors.Is(err, ErrQuantised) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Values that no reference computes are found while rows are made.
func TestConversionsRefuseValues(t *testing.T) {
	c := conversionFile(t, true)
	x, err := Microscaling4(part(c, "mxfp4.weight_packed"),
		spoilt(part(c, "mxfp4.weight_scale"), func(data []byte) { data[9] = 253 }))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Conversion.Rows(make([]byte, x.DType.Bytes(256)), 0); err != nil {
		t.Error(err)
	}
	if err := x.Conversion.Rows(make([]byte, x.DType.Bytes(256)), 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("an exponent of 253: %v", err)
	}
	plain := spoilt(part(c, "packed_plain_zeros.weight_zero_point"), func(data []byte) { data[2] = 8 })
	q := Int4{Codes: part(c, "packed_plain_zeros.weight_packed"), Scales: part(c, "packed_plain_zeros.weight_scale"),
		Zeros: plain}
	if x, err = q.Tensor(); err != nil {
		t.Fatal(err)
	}
	if err := x.Conversion.Rows(make([]byte, x.DType.Bytes(256)), 1); !errors.Is(err, ErrQuantised) {
		t.Errorf("a zero point of 8: %v", err)
	}
	q = Int4{Layout: Int4Columns, Codes: part(c, "gptq.qweight"), Scales: part(c, "gptq.scales"),
		Zeros: part(c, "gptq.qzeros"), Symmetric: true}
	if x, err = q.Tensor(); err != nil {
		t.Fatal(err)
	}
	if err := x.Conversion.Rows(make([]byte, x.DType.Bytes(256)), 0); !errors.Is(err, ErrQuantised) ||
		!strings.Contains(err.Error(), "symmetric") {
		t.Errorf("random zeros of symmetric weights: %v", err)
	}
}

// An order that compressed-tensors declared and never set, with -1, is none. GPTQ has no such orders.
func TestConversionOfAnOrderThatWasNotSet(t *testing.T) {
	c := conversionFile(t, true)
	q := Int4{Codes: part(c, "packed_act_order.weight_packed"), Scales: part(c, "packed_act_order.weight_scale"),
		Zeros: part(c, "packed_act_order.weight_zero_point"), Shape: part(c, "packed_act_order.weight_shape")}
	rows := func(q Int4) []byte {
		x, err := q.Tensor()
		if err != nil {
			t.Fatal(err)
		}
		if x.Conversion.Order != nil {
			t.Error("columns are sorted")
		}
		to := make([]byte, x.DType.Bytes(x.Shape[1]))
		if err := x.Conversion.Rows(to, 0); err != nil {
			t.Fatal(err)
		}
		return to
	}
	want, order := rows(q), part(c, "packed_act_order.weight_g_idx")
	q.Order = spoilt(order, func(data []byte) { copy(data[4:8], "\xff\xff\xff\xff") })
	if !bytes.Equal(rows(q), want) {
		t.Error("the values are not those without an order")
	}
	gptq := Int4{Layout: Int4Columns, Codes: part(c, "gptq_act_order.qweight"), Scales: part(c, "gptq_act_order.scales"),
		Order: spoilt(part(c, "gptq_act_order.g_idx"), func(data []byte) { copy(data[4:8], "\xff\xff\xff\xff") })}
	if _, err := gptq.Tensor(); !errors.Is(err, ErrQuantised) || !strings.Contains(err.Error(), "group -1") {
		t.Errorf("GPTQ with a group of -1: %v", err)
	}
}

// A file that shrinks while rows are made is an error.
func TestConversionMeetsAShrunkenFile(t *testing.T) {
	c := conversionFile(t, true)
	x, err := converts["packed"](c, "packed")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(c.files[0].mapped.Name(), 0); err != nil {
		t.Fatal(err)
	}
	if err := x.Conversion.Rows(make([]byte, x.DType.Bytes(256)), 0); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

// Tensors of any types and shapes, whose data has the size of their shapes, are refused or converted.
func FuzzConversions(f *testing.F) {
	f.Add(uint8(0), []byte{byte(I32), 16, 32, byte(F16), 16, 2, 2, 2, 0}, []byte{1, 2, 3})
	f.Add(uint8(1), []byte{byte(I32), 8, 16, byte(BF16), 2, 16, 2, 2, byte(I32)}, []byte{0, 1, 0, 0})
	f.Add(uint8(2), []byte{byte(I32), 128, 2, byte(F32), 1, 16, 1, 2, 0}, []byte{255})
	f.Add(uint8(3), []byte{byte(F8_E4M3), 16, 128, byte(F32), 16, 1, 0, 0, 0}, []byte{127})
	f.Add(uint8(4), []byte{byte(U8), 16, 16, byte(U8), 16, 1, 0, 0, 0}, []byte{3, 250})
	f.Fuzz(func(t *testing.T, layout uint8, shapes, data []byte) {
		if len(shapes) < 9 || len(data) == 0 {
			return
		}
		make := func(name string, d byte, shape ...byte) (x Tensor) {
			x.Name, x.DType = name, DType(d%byte(len(blocks)))
			if x.DType.Size() == 0 {
				return Tensor{}
			}
			n := x.DType.Size()
			for _, k := range shape {
				x.Shape, n = append(x.Shape, int(k)), n*int(k)
			}
			x.Data = bytes.Repeat(data, n/len(data)+1)[:n]
			return x
		}
		s := shapes
		codes, scales := make("codes", s[0], s[1], s[2]), make("scales", s[3], s[4], s[5])
		x, err := Int4{Layout: Int4Layout(layout % 3), Codes: codes, Scales: scales, Zeros: make("zeros", []byte{byte(I32), byte(I8)}[layout>>5&1], s[6], s[7]),
			Order: make("order", s[8], byte(min(255, 8*int(s[1])))), Symmetric: layout&64 != 0,
			ZerosLessOne: layout&128 != 0}.Tensor()
		if layout%8 == 3 {
			x, err = Float8(codes, scales, int(layout>>7)*128)
		} else if layout%8 == 4 {
			x, err = Microscaling4(codes, scales)
		}
		if err == nil {
			err = x.Conversion.Rows(bytes.Repeat([]byte{1}, x.Shape[0]*x.DType.Bytes(x.Shape[1])), 0)
		}
		if err != nil && !errors.Is(err, ErrQuantised) && !errors.Is(err, ErrActOrder) && !errors.Is(err, ErrNotFinite) {
			t.Error(err)
		}
	})
}

// BenchmarkConversion measures how fast rows are made, in bytes of blocks, on one processor.
func BenchmarkConversion(b *testing.B) {
	const rows, cols = 4096, 4096
	tensor := func(d DType, shape ...int) Tensor {
		size := d.Size()
		for _, n := range shape {
			size *= n
		}
		return Tensor{DType: d, Shape: shape, Data: make([]byte, size)}
	}
	f8, err := Float8(tensor(F8_E4M3, rows, cols), tensor(F32, 32, 32), 128)
	if err != nil {
		b.Fatal(err)
	}
	mx, err := Microscaling4(tensor(U8, rows, cols/2), tensor(U8, rows, cols/32))
	if err != nil {
		b.Fatal(err)
	}
	all := map[string]Tensor{"float8": f8, "mxfp4": mx}
	for name, q := range map[string]Int4{
		"rows": {Codes: tensor(I32, rows, cols/8), Scales: tensor(BF16, rows, cols/128)},
		"columns": {Layout: Int4Columns, Codes: tensor(I32, cols/8, rows), Scales: tensor(F16, cols/128, rows),
			Zeros: tensor(I32, cols/128, rows/8)},
		"interleaved": {Layout: Int4Interleaved, Codes: tensor(I32, cols, rows/8), Scales: tensor(F16, cols/128, rows),
			Zeros: tensor(I32, cols/128, rows/8)},
	} {
		if all[name], err = q.Tensor(); err != nil {
			b.Fatal(err)
		}
	}
	for name, x := range all {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, rows*x.DType.Bytes(cols))
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				if err := x.Conversion.Rows(dst, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
