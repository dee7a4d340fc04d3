package weights

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// numbers lists bits of each DType: some that are finite, then NaNs and infinities.
var numbers = map[DType][2][]uint32{
	BF16:    {{0, 0x8000, 0x0001, 0x3f80, 0x7f7f, 0xff7f}, {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff}},
	F16:     {{0, 0x8000, 0x0001, 0x3c00, 0x7bff, 0xfbff}, {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff}},
	F8_E4M3: {{0, 0x80, 1, 0x7e, 0xfe}, {0x7f, 0xff}},
	F32: {{0, 0x8000_0000, 1, 0x3f80_0000, 0x7f7f_ffff, 0xff7f_ffff},
		{0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001, 0xffff_ffff}},
}

// element returns the bytes of one element.
func element(d DType, number uint32) []byte {
	return binary.LittleEndian.AppendUint32(nil, number)[:d.Size()]
}

// Each NaN and each infinity is found at its element, whatever its neighbours and the length.
func TestNotFinite(t *testing.T) {
	for d, lists := range numbers {
		for length := 1; length < 12; length++ {
			data := []byte{}
			for i := range length {
				data = append(data, element(d, lists[0][i%len(lists[0])])...)
			}
			tensor := Tensor{DType: d, Data: data}
			if at, err := tensor.notFinite(t.Context()); at != -1 || err != nil {
				t.Errorf("%v: element %d of %d finite ones is found, %v", d, at, length, err)
			}
			for i := range length * len(lists[1]) {
				spoilt := Tensor{DType: d, Data: append([]byte{}, data...)}
				bad := lists[1][i%len(lists[1])]
				copy(spoilt.Data[i/len(lists[1])*d.Size():], element(d, bad))
				if at, err := spoilt.notFinite(t.Context()); at != i/len(lists[1]) || err != nil {
					t.Errorf("%v: %x at %d of %d is found at %d, %v", d, bad, i/len(lists[1]), length, at, err)
				}
			}
		}
	}
}

// The error names file, tensor and element. A large tensor is read in parts, until the context ends.
func TestFinite(t *testing.T) {
	const n = betweenLooks/2 + 3
	header := fmt.Sprintf(`{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},`+
		`"b":{"dtype":"F16","shape":[%d],"data_offsets":[4,%d]}}`, n, 4+2*n)
	data := append(pack(header, 0), make([]byte, 4+2*n)...)
	open := func() *Checkpoint {
		c, err := Open(single(data))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := open().Finite(t.Context()); err != nil {
		t.Errorf("zeros: %v", err)
	}
	copy(data[len(data)-4:], element(F16, 0x7e00))
	err := open().Finite(t.Context())
	want := fmt.Sprintf(`%s: tensor "b": element %d of %d`, singleName, n-2, n)
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := open().Finite(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
