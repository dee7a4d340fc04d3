package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"reel.internal/reel/generator/tiny"
)

// pack returns a file of a header and n bytes of tensors: 0, 1, 2, …
func pack(header string, n int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = append(data, header...)
	for i := range n {
		data = append(data, byte(i))
	}
	return data
}

// good is a valid header: tensors out of order, a scalar, an empty tensor, padding.
const good = `{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},` +
	`"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},` +
	`"none":{"dtype":"F16","shape":[0,4],"data_offsets":[16,16]}}   `

func single(data []byte) fstest.MapFS { return fstest.MapFS{singleName: {Data: data}} }

// refused opens files copied and mapped. Both must fail with want and a text that
// contains names.
func refused(t *testing.T, files fstest.MapFS, want error, names string) {
	t.Helper()
	dir := t.TempDir()
	for name, f := range files {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for kind, fsys := range map[string]fs.FS{"copied": files, "mapped": os.DirFS(dir)} {
		if _, err := Open(fsys); !errors.Is(err, want) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v, want %v naming %q", kind, err, want, names)
		}
	}
}

func TestTensors(t *testing.T) {
	dir := t.TempDir()
	data := pack(good, 16)
	if err := os.WriteFile(filepath.Join(dir, singleName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fsys := range map[string]fs.FS{"copied": single(data), "mapped": os.DirFS(dir)} {
		t.Run(name, func(t *testing.T) { checkGood(t, fsys) })
	}
}

func checkGood(t *testing.T, fsys fs.FS) {
	c, err := Open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Names(); !slices.Equal(got, []string{"a", "b", "none"}) {
		t.Errorf("Names = %v", got)
	}
	for _, want := range []Tensor{
		{Name: "a", DType: BF16, Shape: []int{2, 3}, Data: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, File: singleName},
		{Name: "b", DType: F32, Shape: nil, Data: []byte{12, 13, 14, 15}, File: singleName},
		{Name: "none", DType: F16, Shape: []int{0, 4}, Data: []byte{}, File: singleName},
	} {
		got, err := c.Tensor(want.Name)
		got.mapped = false
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Tensor(%s) = %v, %v, want %v", want.Name, got, err, want)
		}
	}
	_, err = c.Tensor("absent")
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), singleName+`: "absent"`) {
		t.Errorf("Tensor(absent): %v", err)
	}
	if err := c.Unchanged(); err != nil {
		t.Error(err)
	}
}

func TestEmbeddedModel(t *testing.T) {
	c, err := Open(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	total := 0
	for _, name := range c.Names() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(x.Data)
	}
	if total < 1<<20 {
		t.Errorf("%d bytes of tensors", total)
	}
}

func one(dtype, shape, offsets string) string {
	return `{"x":{"dtype":` + dtype + `,"shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

func two(first, second string) string {
	return `{"x":{"dtype":"F16","shape":[2],"data_offsets":` + first + `},` +
		`"y":{"dtype":"F16","shape":[2],"data_offsets":` + second + `}}`
}

func TestRefusedHeaders(t *testing.T) {
	deep := strings.Repeat("[", 20000)
	for name, c := range map[string]struct {
		header string
		body   int
		want   error
		names  string
	}{
		"no JSON":           {`hello`, 0, ErrHeader, ""},
		"array":             {`[]`, 0, ErrHeader, ""},
		"empty":             {``, 0, ErrHeader, ""},
		"cut JSON":          {`{"x":`, 0, ErrHeader, "x"},
		"cut object":        {`{`, 0, ErrHeader, ""},
		"two objects":       {`{} {}`, 0, ErrHeader, ""},
		"not UTF-8":         {"{\"\xff\":1}", 0, ErrHeader, "UTF-8"},
		"deep":              {`{"x":` + deep, 0, ErrHeader, "x"},
		"deep dtype":        {one(deep, `[2]`, `[0,4]`), 4, ErrHeader, "x"},
		"name twice":        {strings.Replace(two(`[0,4]`, `[0,4]`), `"y"`, `"x"`, 1), 4, ErrHeader, "x"},
		"metadata no map":   {`{"__metadata__":3}`, 0, ErrHeader, "__metadata__"},
		"unknown field":     {one(`"F16"`, `[2]`, `[0,4],"scale":1`), 4, ErrHeader, "scale"},
		"no dtype":          {`{"x":{"shape":[2],"data_offsets":[0,4]}}`, 4, ErrHeader, "x"},
		"no shape":          {`{"x":{"dtype":"F16","data_offsets":[0,4]}}`, 4, ErrHeader, "x"},
		"no offsets":        {`{"x":{"dtype":"F16","shape":[2]}}`, 4, ErrHeader, "x"},
		"three offsets":     {one(`"F16"`, `[2]`, `[0,4,8]`), 4, ErrHeader, "x"},
		"null offset":       {one(`"F16"`, `[2]`, `[null,4]`), 4, ErrHeader, "x"},
		"null entry":        {`{"x":null}`, 0, ErrHeader, "x"},
		"negative shape":    {one(`"F16"`, `[-2]`, `[0,4]`), 4, ErrHeader, "-2"},
		"two negatives":     {one(`"F16"`, `[-2,-1]`, `[0,4]`), 4, ErrHeader, "-2"},
		"fraction":          {one(`"F16"`, `[2.0]`, `[0,4]`), 4, ErrHeader, "2.0"},
		"exponent":          {one(`"F16"`, `[2]`, `[0,4e0]`), 4, ErrHeader, "4e0"},
		"text number":       {one(`"F16"`, `["2"]`, `[0,4]`), 4, ErrHeader, "x"},
		"negative offset":   {one(`"F16"`, `[2]`, `[-4,0]`), 4, ErrHeader, "-4"},
		"past 63 bits":      {one(`"F16"`, `[2]`, `[0,9223372036854775808]`), 4, ErrHeader, "x"},
		"unknown dtype":     {one(`"F8_E5M2"`, `[4]`, `[0,4]`), 4, ErrDType, "F8_E5M2"},
		"no such dtype":     {one(`""`, `[4]`, `[0,4]`), 4, ErrDType, "x"},
		"shape too small":   {one(`"F16"`, `[1]`, `[0,4]`), 4, ErrShape, "x"},
		"product overflows": {one(`"F16"`, `[4294967296,4294967296]`, `[0,0]`), 0, ErrShape, "x"},
		"bytes overflow":    {one(`"F32"`, `[4611686018427387904]`, `[0,0]`), 0, ErrShape, "x"},
		"overflow then 0":   {one(`"F16"`, `[4294967296,4294967296,0]`, `[0,0]`), 0, ErrShape, "x"},
		"end before begin":  {one(`"F16"`, `[2]`, `[4,0]`), 4, ErrShape, "x"},
		"negative size":     {one(`"F16"`, `[9223372036854775806]`, `[4,0]`), 4, ErrShape, "x"},
		"overlap":           {two(`[0,4]`, `[2,6]`), 6, ErrRange, "y"},
		"same bytes":        {two(`[0,4]`, `[0,4]`), 4, ErrRange, "y"},
		"hole":              {two(`[0,4]`, `[6,10]`), 10, ErrRange, "y"},
		"hole at the start": {two(`[2,6]`, `[6,10]`), 10, ErrRange, "x"},
		"past the end":      {one(`"F16"`, `[2]`, `[0,4]`), 3, ErrTruncated, "needs 4 bytes and 3 are there"},
		"trailing bytes":    {one(`"F16"`, `[2]`, `[0,4]`), 5, ErrRange, "take 4 bytes and 5 are there"},
		"no tensor, bytes":  {`{}`, 1, ErrRange, ""},
		"nine dimensions":   {one(`"F16"`, `[2,1,1,1,1,1,1,1,1]`, `[0,4]`), 4, ErrTooLarge, "x"},
		"long name":         {`{"` + strings.Repeat("n", maxName+1) + `":{}}`, 0, ErrTooLarge, "nnn"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, single(pack(c.header, c.body)), c.want, c.names)
			refused(t, single(pack(c.header, c.body)), c.want, singleName)
		})
	}
}

func TestRefusedLengths(t *testing.T) {
	for name, c := range map[string]struct {
		length uint64
		want   error
	}{
		"past the file":   {20, ErrTruncated},
		"past the format": {maxHeader + 1, ErrTooLarge},
		"most":            {1<<64 - 1, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			data := binary.LittleEndian.AppendUint64(nil, c.length)
			refused(t, single(append(data, "{}"...)), c.want, singleName)
		})
	}
}

func TestEveryTruncation(t *testing.T) {
	data := pack(good, 16)
	refused(t, single(nil), ErrTruncated, singleName)
	for n := range data {
		if c, err := Open(single(data[:n])); err == nil {
			t.Errorf("%d of %d bytes: no error, tensors %v", n, len(data), c.Names())
		}
	}
}

// shards returns a checkpoint of an index and shards with one tensor each.
func shards(index string, tensors map[string]string) fstest.MapFS {
	files := fstest.MapFS{indexName: {Data: []byte(index)}}
	for file, tensor := range tensors {
		files[file] = &fstest.MapFile{Data: pack(strings.Replace(one(`"F16"`, `[2]`, `[0,4]`), "x", tensor, 1), 4)}
	}
	return files
}

func TestShards(t *testing.T) {
	c, err := Open(shards(`{"metadata":{"total_size":8.0},"weight_map":{"x":"1.safetensors","y":"2.safetensors"}}`,
		map[string]string{"1.safetensors": "x", "2.safetensors": "y"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Names(); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("Names = %v", got)
	}
}

func TestRefusedIndexes(t *testing.T) {
	files := map[string]string{"1.safetensors": "x", "2.safetensors": "y"}
	for name, c := range map[string]struct {
		index string
		want  error
		names string
	}{
		"none":            {"", ErrHeader, indexName},
		"no weight_map":   {`{}`, ErrIndex, "weight_map"},
		"weight_map list": {`{"weight_map":[]}`, ErrHeader, "weight_map"},
		"unknown field":   {`{"weight_map":{"x":"1.safetensors"},"other":1}`, ErrHeader, "other"},
		"tensor twice":    {`{"weight_map":{"x":"1.safetensors","x":"2.safetensors"}}`, ErrHeader, "x"},
		"number":          {`{"weight_map":{"x":1}}`, ErrHeader, "x"},
		"shard lacks":     {`{"weight_map":{"x":"1.safetensors","z":"1.safetensors"}}`, ErrIndex, "z"},
		"index lacks":     {`{"weight_map":{"z":"1.safetensors"}}`, ErrIndex, "x"},
		"wrong shard":     {`{"weight_map":{"x":"2.safetensors","y":"1.safetensors"}}`, ErrIndex, "1.safetensors"},
		"no such shard":   {`{"weight_map":{"x":"3.safetensors"}}`, fs.ErrNotExist, "3.safetensors"},
		"slash":           {`{"weight_map":{"x":"a/1.safetensors"}}`, ErrIndex, "a/1"},
		"backslash":       {`{"weight_map":{"x":"a\\1.safetensors"}}`, ErrIndex, "x"},
		"parent":          {`{"weight_map":{"x":".."}}`, ErrIndex, ".."},
		"parent's file":   {`{"weight_map":{"x":"../1.safetensors"}}`, ErrIndex, ".."},
		"absolute":        {`{"weight_map":{"x":"/1.safetensors"}}`, ErrIndex, "/1"},
		"other file":      {`{"weight_map":{"x":"config.json"}}`, ErrIndex, "config.json"},
		"many tensors":    {`{"weight_map":{` + manyShards() + `}}`, ErrTooLarge, "weight_map"},
		"empty name":      {`{"weight_map":{"x":""}}`, ErrIndex, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, shards(c.index, files), c.want, c.names)
		})
	}
}

func manyShards() string {
	var b strings.Builder
	for i := range maxTensors + 2 {
		fmt.Fprintf(&b, `,"%d":"1.safetensors"`, i)
	}
	return b.String()[1:]
}

func TestSameTensorInTwoShards(t *testing.T) {
	refused(t, shards(`{"weight_map":{"x":"1.safetensors","y":"2.safetensors"}}`,
		map[string]string{"1.safetensors": "x", "2.safetensors": "x"}), ErrIndex, "2.safetensors")
}

func TestIndexTooLarge(t *testing.T) {
	refused(t, shards(strings.Repeat(" ", maxIndex+1), nil), ErrTooLarge, indexName)
}

func TestEmptyDirectory(t *testing.T) {
	_, err := Open(os.DirFS(t.TempDir()))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "neither "+singleName+" nor "+indexName) {
		t.Error(err)
	}
}

func TestNotARegularFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, singleName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(os.DirFS(dir)); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
}

func TestUnchanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"shorter": func(path string) error { return os.Truncate(path, 20) },
		"longer":  func(path string) error { return os.Truncate(path, 1<<20) },
		"shorter, same time": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(os.Truncate(path, 20), os.Chtimes(path, time.Time{}, info.ModTime()))
		},
		"touched": func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, singleName)
			if err := os.WriteFile(path, pack(good, 16), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Open(os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			if err := c.Unchanged(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), singleName) {
				t.Errorf("%v, want %v", err, ErrChanged)
			}
		})
	}
}

// TestReplacedByRename checks that a file which takes the name over leaves the mapping
// as it is.
func TestReplacedByRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, singleName)
	err := errors.Join(os.WriteFile(path, pack(good, 16), 0o600), os.WriteFile(path+".new", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if a, err := c.Tensor("a"); err != nil || a.Data[11] != 11 || c.Unchanged() != nil {
		t.Error(a, err, c.Unchanged())
	}
}

// TestNothingStaysOpen counts descriptors before and after refused and closed
// checkpoints.
func TestNothingStaysOpen(t *testing.T) {
	dir := t.TempDir()
	write := func(data []byte) {
		if err := os.WriteFile(filepath.Join(dir, singleName), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := descriptors(t)
	for range 20 {
		for _, bad := range [][]byte{nil, pack(good, 15)} {
			write(bad)
			if _, err := Open(os.DirFS(dir)); err == nil {
				t.Fatal("no error")
			}
		}
		write(pack(good, 16))
		c, err := Open(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("wants /proc: ", err)
	}
	return len(list)
}

func TestDType(t *testing.T) {
	for d, want := range map[DType]string{BF16: "BF16 2", F16: "F16 2", F32: "F32 4", 0: "none 0"} {
		if got := fmt.Sprint(d, d.Size()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
