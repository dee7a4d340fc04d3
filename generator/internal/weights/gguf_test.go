package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// ggufDir is a directory whose model is a GGUF file.
type ggufDir struct {
	fs.FS
	name string
}

func (d ggufDir) GGUF() string { return d.name }

// described is a tensor of a GGUF file that a test writes.
type described struct {
	name   string
	dims   []uint64 // the number of columns first
	kind   uint32
	offset uint64
}

// ggufPair returns the bytes of a key and a value of a kind.
func ggufPair(key string, k kind, value ...byte) []byte {
	b := ggufString(key)
	return append(binary.LittleEndian.AppendUint32(b, uint32(k)), value...)
}

func ggufString(s string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
}

// ggufArray returns the value of an array with raw elements.
func ggufArray(k kind, count uint64, raw ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(k))
	return append(binary.LittleEndian.AppendUint64(b, count), raw...)
}

func le32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
func le64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// ggufFile returns a file with n bytes after its header.
func ggufFile(pairs [][]byte, tensors []described, n int) []byte {
	b := append([]byte("GGUF"), le32(3)...)
	b = append(append(b, le64(uint64(len(tensors)))...), le64(uint64(len(pairs)))...)
	for _, p := range pairs {
		b = append(b, p...)
	}
	for _, t := range tensors {
		b = append(append(b, ggufString(t.name)...), le32(uint32(len(t.dims)))...)
		for _, d := range t.dims {
			b = append(b, le64(d)...)
		}
		b = append(append(b, le32(t.kind)...), le64(t.offset)...)
	}
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

// goodPairs has a value of every kind.
func goodPairs() [][]byte {
	return [][]byte{
		ggufPair("u8", kindU8, 200), ggufPair("i8", kindI8, 0xfe), ggufPair("u16", kindU16, 1, 2),
		ggufPair("i16", kindI16, 0xff, 0xff), ggufPair("u32", kindU32, le32(7)...),
		ggufPair("i32", kindI32, le32(9)...),
		ggufPair("u64", kindU64, le64(1<<63)...), ggufPair("i64", kindI64, le64(5)...),
		ggufPair("f32", kindF32, le32(math.Float32bits(1.5))...),
		ggufPair("f64", kindF64, le64(math.Float64bits(0.1))...),
		ggufPair("yes", kindBool, 1), ggufPair("no", kindBool, 0),
		ggufPair("text", kindString, ggufString("hello")...), ggufPair("no text", kindString, ggufString("")...),
		ggufPair("words", kindArray, ggufArray(kindString, 2, append(ggufString("a"), ggufString("bc")...)...)...),
		ggufPair("numbers", kindArray, ggufArray(kindI32, 2, append(le32(3), le32(math.MaxUint32)...)...)...),
		ggufPair("scores", kindArray, ggufArray(kindF32, 1, le32(math.Float32bits(-2))...)...),
		ggufPair("nothing", kindArray, ggufArray(kindU8, 0)...),
	}
}

// goodGGUF has a vector, a matrix [2][64] of Q8_0, listed first, and padding.
func goodGGUF() []byte {
	return ggufFile(goodPairs(), []described{{"m", []uint64{64, 2}, 8, 32}, {"v", []uint64{3}, 0, 0}}, 32+4*34)
}

func openGGUF(data []byte) (*Checkpoint, error) {
	return Open(ggufDir{fstest.MapFS{"x.gguf": {Data: data}}, "x.gguf"})
}

func TestGGUFTensors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.gguf"), goodGGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	copied := fstest.MapFS{"x.gguf": {Data: goodGGUF()}}
	for kind, fsys := range map[string]fs.FS{"mapped": os.DirFS(dir), "copied": copied} {
		c, err := Open(ggufDir{fsys, "x.gguf"})
		if err != nil {
			t.Fatal(kind, err)
		}
		m, err := c.Tensor("m")
		if err != nil || m.DType != Q8_0 || !slices.Equal(m.Shape, []int{2, 64}) || len(m.Data) != 4*34 ||
			m.Data[0] != 32 {
			t.Errorf("%s: %v, %v", kind, m, err)
		}
		v, err := c.Tensor("v")
		if err != nil || v.DType != F32 || !slices.Equal(v.Shape, []int{3}) || len(v.Data) != 12 || v.Data[0] != 0 {
			t.Errorf("%s: %v, %v", kind, v, err)
		}
		c.DropMetadata()
		if _, err := c.Tensor("none"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "x.gguf") {
			t.Error(err)
		}
		if got := c.files[0].middles; !slices.Equal(got, []int{len(goodGGUF()) - 168 + 6, len(goodGGUF()) - 68}) {
			t.Errorf("%s: middles %v of %d bytes", kind, got, len(goodGGUF()))
		}
		if s, err := c.State(); err != nil || s[0].Size != int64(len(goodGGUF())) {
			t.Error(kind, s, err)
		}
		if err := errors.Join(c.Unchanged(), c.Close()); err != nil {
			t.Error(kind, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	c, err := openGGUF(goodGGUF())
	if err != nil {
		t.Fatal(err)
	}
	m := c.Metadata()
	check := func(got any, ok bool) string { return fmt.Sprint(got, " ", ok) }
	for i, x := range []struct{ got, want string }{
		{check(m.Uint("u8")), "200 true"}, {check(m.Uint("u16")), "513 true"}, {check(m.Uint("u32")), "7 true"},
		{check(m.Uint("i32")), "9 true"},
		{check(m.Uint("u64")), "9223372036854775808 true"}, {check(m.Uint("i64")), "5 true"},
		{check(m.Float("f32")), "1.5 true"}, {check(m.Float("f64")), "0.1 true"},
		{check(m.Bool("yes")), "true true"}, {check(m.Bool("no")), "false true"}, {check(m.Bool("u8")), "false false"},
		{check(m.String("text")), "hello true"}, {check(m.String("no text")), " true"},
		{check(m.Strings("words")), "[a bc] true"}, {check(m.Ints("numbers")), "[3 -1] true"},
		{check(m.Floats("scores")), "[-2] true"}, {check(m.Ints("nothing")), "[] true"},
	} {
		if x.got != x.want {
			t.Errorf("%d: %s, wants %s", i, x.got, x.want)
		}
	}
	for _, key := range []string{"absent", "text", "words", "numbers", "f32", "i8", "i16"} {
		if n, ok := m.Uint(key); ok {
			t.Errorf("Uint(%s) = %d", key, n)
		}
	}
	for _, key := range []string{"absent", "u8", "yes", "words"} {
		if s, ok := m.String(key); ok {
			t.Errorf("String(%s) = %q", key, s)
		}
	}
	for _, key := range []string{"absent", "text", "scores"} {
		if list, ok := m.Ints(key); ok {
			t.Errorf("Ints(%s) = %v", key, list)
		}
	}
	if got := len(m.Keys()); got != len(goodPairs()) {
		t.Errorf("%d keys", got)
	}
	if _, ok := Metadata(nil).String("text"); ok {
		t.Error("a nil Metadata has a key")
	}
}

func TestRefusedGGUF(t *testing.T) {
	long := strings.Repeat("n", maxName+1)
	vector := func(change func(d *described)) []byte {
		d := described{"v", []uint64{8}, 0, 0}
		change(&d)
		return ggufFile(nil, []described{d}, 32)
	}
	pair := func(p []byte) []byte { return ggufFile([][]byte{p}, nil, 0) }
	second := func(offset uint64, size int) []byte {
		return ggufFile(nil, []described{{"a", []uint64{8}, 0, 0}, {"b", []uint64{8}, 0, offset}}, size)
	}
	counts := func(tensors, pairs uint64) []byte {
		return append(append([]byte("GGUF\x03\x00\x00\x00"), le64(tensors)...), le64(pairs)...)
	}
	one := ggufPair("k", kindU8, 1)
	for name, c := range map[string]struct {
		data  []byte
		want  error
		names string
	}{
		"empty":              {nil, ErrTruncated, ""},
		"magic":              {append([]byte("GGML"), make([]byte, 30)...), ErrHeader, "GGUF"},
		"version 1":          {append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 30)...), ErrHeader, "version 1"},
		"big-endian":         {append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 30)...), ErrHeader, "little-endian"},
		"pairs":              {counts(0, 1<<62), ErrTooLarge, "pairs"},
		"tensors":            {counts(1<<62, 0), ErrTooLarge, "tensors"},
		"key too long":       {pair(ggufPair(long, kindU8, 1)), ErrTooLarge, "name"},
		"key past the end":   {pair(le64(200)), ErrTruncated, ""},
		"value past the end": {pair(ggufPair("k", kindString, le64(1<<33)...)), ErrTruncated, `"k"`},
		"value of 2^62":      {pair(ggufPair("k", kindString, le64(1<<62)...)), ErrTruncated, `"k"`},
		"unknown type":       {pair(ggufPair("k", 13, 0)), ErrHeader, `"k"`},
		"array of arrays":    {pair(ggufPair("k", kindArray, ggufArray(kindArray, 1)...)), ErrHeader, `"k"`},
		"array unknown":      {pair(ggufPair("k", kindArray, ggufArray(99, 1)...)), ErrHeader, `"k"`},
		"array of 6 Gi":      {pair(ggufPair("k", kindArray, ggufArray(kindU8, 6<<30)...)), ErrTruncated, `"k"`},
		"array overflows":    {pair(ggufPair("k", kindArray, ggufArray(kindU64, 1<<61)...)), ErrTruncated, `"k"`},
		"strings of 6 Gi":    {pair(ggufPair("k", kindArray, ggufArray(kindString, 6<<30)...)), ErrTruncated, `"k"`},
		"49 MB": {pair(ggufPair("k", kindArray, ggufArray(kindU8, maxMetadata+1, make([]byte, maxMetadata+1)...)...)),
			ErrTooLarge, "metadata of more"},
		"key twice":      {ggufFile([][]byte{one, one}, nil, 0), ErrHeader, "twice"},
		"alignment 0":    {pair(ggufPair("general.alignment", kindU32, le32(0)...)), ErrHeader, "alignment"},
		"alignment 3":    {pair(ggufPair("general.alignment", kindU32, le32(3)...)), ErrHeader, "alignment"},
		"alignment 2^20": {pair(ggufPair("general.alignment", kindU32, le32(1<<20)...)), ErrHeader, "alignment"},
		"alignment, text": {pair(ggufPair("general.alignment", kindString, ggufString("8")...)),
			ErrHeader, "alignment has a value of type string, wants a multiple of 8"},
		"alignment, float": {pair(ggufPair("general.alignment", kindF32, le32(math.Float32bits(32))...)),
			ErrHeader, "type float32,"},
		"alignments": {pair(ggufPair("general.alignment", kindArray, ggufArray(kindU32, 1, le32(32)...)...)),
			ErrHeader, "type array of uint32,"},
		"alignment, empty list": {pair(ggufPair("general.alignment", kindArray, ggufArray(kindString, 0)...)),
			ErrHeader, "type array of string,"},
		"alignment -8": {pair(ggufPair("general.alignment", kindI32, le32(math.MaxUint32-7)...)),
			ErrHeader, "alignment is -8, wants"},
		"no dimension": {vector(func(d *described) { d.dims = nil }), ErrTooLarge, "0 dimensions"},
		"five dimensions": {vector(func(d *described) { d.dims = []uint64{1, 1, 1, 1, 8} }),
			ErrTooLarge, "5 dimensions"},
		"2^32-1 dimensions": {append(append(counts(1, 0), ggufString("v")...), 255, 255, 255, 255),
			ErrTooLarge, "dimensions"},
		"dimension 0":        {vector(func(d *described) { d.dims = []uint64{8, 0} }), ErrShape, `"v"`},
		"product overflows":  {vector(func(d *described) { d.dims = []uint64{1 << 40, 1 << 40} }), ErrShape, `"v"`},
		"overflow to 0":      {vector(func(d *described) { d.dims = []uint64{1 << 47, 1 << 17} }), ErrShape, `"v"`},
		"negative":           {vector(func(d *described) { d.dims = []uint64{1 << 63} }), ErrShape, `"v"`},
		"part of a block":    {vector(func(d *described) { d.dims, d.kind = []uint64{48}, 8 }), ErrShape, "Q8_0"},
		"blocks across rows": {vector(func(d *described) { d.dims, d.kind = []uint64{16, 2}, 8 }), ErrShape, "Q8_0"},
		"Ollama's MXFP4":     {vector(func(d *described) { d.kind = 4 }), ErrDType, "GGUF type 4: take"},
		"refused format":     {vector(func(d *described) { d.kind = 10 }), ErrDType, "Q2_K: take"},
		"unknown format":     {vector(func(d *described) { d.kind = 99 }), ErrDType, "GGUF type 99: take"},
		"long name":          {vector(func(d *described) { d.name = long }), ErrTooLarge, "name"},
		"not aligned":        {vector(func(d *described) { d.offset = 8 }), ErrRange, `"v"`},
		"gap before":         {vector(func(d *described) { d.offset = 32 }), ErrRange, `"v"`},
		"far":                {vector(func(d *described) { d.offset = 1 << 63 }), ErrRange, `"v"`},
		"past the end":       {vector(func(d *described) { d.dims = []uint64{9} }), ErrTruncated, "36 bytes and 32"},
		"overlap":            {second(0, 64), ErrRange, ""},
		"gap":                {second(64, 96), ErrRange, `"b"`},
		"trailing":           {second(32, 96), ErrRange, "64 bytes and 96"},
		"tensor twice": {ggufFile(nil, []described{{"a", []uint64{8}, 0, 0}, {"a", []uint64{8}, 0, 32}}, 64),
			ErrHeader, `"a"`},
		"header without data": {ggufFile(nil, []described{{"v", []uint64{8}, 0, 0}}, 0), ErrTruncated, `"v"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openGGUF(c.data)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) ||
				!strings.Contains(err.Error(), "x.gguf") {
				t.Errorf("%v, wants %v with %q", err, c.want, c.names)
			}
		})
	}
}

func TestEveryGGUFTruncation(t *testing.T) {
	data := goodGGUF()
	for n := range data {
		if _, err := openGGUF(data[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
}

// typed reports whether err wraps an error of this package.
func typed(err error) bool {
	return slices.ContainsFunc([]error{ErrTruncated, ErrHeader, ErrTooLarge, ErrDType, ErrShape, ErrRange, ErrIndex},
		func(e error) bool { return errors.Is(err, e) })
}

// ggufOf returns a file with a matrix [2][256] of a format, a vector, and a value of every kind; and the length of its
// header.
func ggufOf(number uint32) (file []byte, header int) {
	data := 32 + (ggufTypes[number].Bytes(512)+31)/32*32
	file = ggufFile(goodPairs(), []described{{"m", []uint64{256, 2}, number, 32}, {"v", []uint64{8}, 0, 0}}, data)
	return file, len(file) - data
}

// Mutations of the header give a typed error or a checkpoint whose tensors lie in the file; they never panic, and
// together they allocate little. They are made of a file of each format.
func TestMutatedGGUF(t *testing.T) {
	for number, d := range ggufTypes {
		t.Run(d.String(), func(t *testing.T) { mutateGGUF(t, number, d) })
	}
}

func mutateGGUF(t *testing.T, number uint32, d DType) {
	t.Helper()
	good, header := ggufOf(number)
	c, err := openGGUF(good)
	if err != nil || c.tensors["m"].DType != d || len(c.tensors["m"].Data) != d.Bytes(512) {
		t.Fatal(c, err)
	}
	random := rand.New(rand.NewPCG(24, uint64(d)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refused, count := 0, 2000
	for range count {
		data := slices.Clone(good)
		for range 1 + random.IntN(3) {
			at := random.IntN(header)
			switch random.IntN(3) {
			case 0:
				data[at] = byte(random.Uint32())
			case 1:
				binary.LittleEndian.PutUint64(data[at:], 1<<random.IntN(64)-1)
			case 2:
				data = slices.Delete(data, at, at+1+random.IntN(16))
			}
		}
		if _, err := openGGUF(data); err != nil {
			refused++
			if !typed(err) {
				t.Fatalf("untyped: %v", err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if perFile := (after.TotalAlloc - before.TotalAlloc) / uint64(count); refused < 500 || perFile > 1<<20 {
		t.Errorf("%d of %d are refused, %d bytes allocated for each", refused, count, perFile)
	}
}

func FuzzGGUF(f *testing.F) {
	f.Add(goodGGUF())
	f.Add(ggufFile(nil, []described{{"a", []uint64{256}, 12, 0}, {"b", []uint64{8}, 0, 160}}, 192))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := openGGUF(data)
		if err != nil {
			if !typed(err) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		for _, name := range c.Names() {
			x, _ := c.Tensor(name)
			n := 1
			for _, d := range x.Shape {
				n *= d
			}
			if len(x.Data) != x.DType.Bytes(n) {
				t.Fatalf("%v%v in %d bytes", x.DType, x.Shape, len(x.Data))
			}
		}
		for _, key := range c.Metadata().Keys() {
			_, _ = c.Metadata().Strings(key)
			_, _ = c.Metadata().Ints(key)
			_, _ = c.Metadata().Floats(key)
			_, _ = c.Metadata().Uint(key)
		}
	})
}

// parts returns a model in two parts.
func parts(change func(files fstest.MapFS)) ggufDir {
	files := fstest.MapFS{}
	for i := range 2 {
		pairs := [][]byte{ggufPair("split.no", kindU16, byte(i), 0), ggufPair("split.count", kindU16, 2, 0),
			ggufPair("split.tensors.count", kindI32, le32(2)...)}
		files[fmt.Sprintf("m-0000%d-of-00002.gguf", i+1)] = &fstest.MapFile{
			Data: ggufFile(pairs, []described{{fmt.Sprint("t", i), []uint64{8}, 0, 0}}, 32)}
	}
	change(files)
	return ggufDir{files, "m-00001-of-00002.gguf"}
}

func TestSplitGGUF(t *testing.T) {
	c, err := Open(parts(func(fstest.MapFS) {}))
	if err != nil || !slices.Equal(c.Names(), []string{"t0", "t1"}) {
		t.Fatal(c, err)
	}
	const one, two = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	for name, x := range map[string]struct {
		change func(f fstest.MapFS)
		want   error
		names  string
	}{
		"lost":    {func(f fstest.MapFS) { delete(f, two) }, fs.ErrNotExist, "first of 2 parts"},
		"same":    {func(f fstest.MapFS) { f[two] = f[one] }, ErrHeader, "t0"},
		"swapped": {func(f fstest.MapFS) { f[one], f[two] = f[two], f[one] }, ErrIndex, "part 1 of 2"},
		"fewer":   {func(f fstest.MapFS) { f[two] = &fstest.MapFile{Data: goodGGUF()} }, ErrIndex, "part 2 of 2"},
	} {
		if _, err := Open(parts(x.change)); !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.names) {
			t.Errorf("%s: %v, wants %v with %q", name, err, x.want, x.names)
		}
	}
	d := parts(func(f fstest.MapFS) { f["m.gguf"] = f[two] })
	d.name = "m.gguf"
	if _, err := Open(d); !errors.Is(err, ErrIndex) || !strings.Contains(err.Error(), "give the first") {
		t.Error(err)
	}
}
