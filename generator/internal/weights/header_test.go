package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestHostileHeaderMemory bounds the memory that a header with one long part takes.
func TestHostileHeaderMemory(t *testing.T) {
	const size = 40 << 20
	for name, header := range map[string]func() string{
		"long name":  func() string { return `{"` + strings.Repeat("n", size) },
		"long value": func() string { return `{"x":"` + strings.Repeat("v", size) },
		"long array": func() string { return `{"x":{"shape":[` + strings.Repeat("0,", size/2) },
		"long space": func() string { return `{"x":` + strings.Repeat(" ", size) },
		"metadata":   func() string { return `{"__metadata__":{"k":"` + strings.Repeat("v", size) },
	} {
		t.Run(name, func(t *testing.T) { checkMemory(t, []byte(header())) })
	}
}

func checkMemory(t *testing.T, header []byte) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := parseHeader(header, maxTensors)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v, want %v", err, ErrTooLarge)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 16<<20 {
		t.Errorf("%d MiB allocated", taken>>20)
	}
}

// TestManyTensorsMemory bounds the memory that the tensors of the largest valid
// header hold.
func TestManyTensorsMemory(t *testing.T) {
	var b strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&b, `,"%0*d":{"dtype":"F16","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]}`, maxName, i)
	}
	header := []byte("{" + b.String()[1:])
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	list, err := parseHeader(header, maxTensors)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || len(list) != maxTensors {
		t.Errorf("%d tensors, %v, want %v", len(list), err, ErrTooLarge)
	}
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 64<<20 {
		t.Errorf("%d MiB held", held>>20)
	}
	runtime.KeepAlive(header)
}

// FuzzParseHeader checks the guarantees of the format on each file that parse accepts.
func FuzzParseHeader(f *testing.F) {
	f.Add([]byte(good), 16)
	f.Add([]byte(two(`[0,4]`, `[4,8]`)), 8)
	f.Add([]byte(one(`"F16"`, `[4294967296,4294967296]`, `[0,0]`)), 0)
	f.Fuzz(func(t *testing.T, header []byte, body int) {
		body &= 0xFFFF
		tensors, err := parse(&file{data: pack(string(header), body)}, maxTensors)
		if err != nil {
			return
		}
		total, seen := 0, map[string]bool{}
		for _, x := range tensors {
			n := x.DType.Size()
			for _, d := range x.Shape {
				n *= d
			}
			if n != len(x.Data) || seen[x.Name] || x.DType.Size() == 0 {
				t.Errorf("%s %v %v with %d bytes", x.Name, x.DType, x.Shape, len(x.Data))
			}
			seen[x.Name] = true
			total += len(x.Data)
		}
		if total != body || !json.Valid(header) {
			t.Errorf("%d of %d bytes belong to a tensor, header %q", total, body, header)
		}
	})
}
