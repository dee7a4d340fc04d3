// Package ggufmake writes GGUF files: those of reel-generator convert, and those of tests.
package ggufmake

import (
	"encoding/binary"
	"fmt"
	"math"

	"reel.internal/reel/generator/internal/weights"
)

// Pair is a key and its value: a string, bool, uint32, float32, []string, []float32, []int32 or []bool.
type Pair struct {
	Key   string
	Value any
}

// Info describes a tensor of a file. Its shape is [rows][columns], or [length].
type Info struct {
	Name  string
	DType weights.DType
	Shape []int
	// Adjacent writes the number of MXFP4 with columns beside each other, see [weights.Tensor].
	Adjacent bool
}

// Bytes returns the size of the tensor's data.
func (i Info) Bytes() int64 {
	n := 1
	for _, d := range i.Shape {
		n *= d
	}
	return int64(i.DType.Bytes(n))
}

// types maps our types to GGUF's.
var types = map[weights.DType]uint32{weights.F32: 0, weights.F16: 1, weights.Q4_0: 2, weights.Q4_1: 3,
	weights.Q5_0: 6, weights.Q5_1: 7, weights.Q8_0: 8, weights.Q4_K: 12, weights.Q5_K: 13, weights.Q6_K: 14,
	weights.IQ4_XS: 23, weights.BF16: 30, weights.MXFP4: 39}

// ollamaMXFP4 is the number of MXFP4 in Ollama's first files of gpt-oss.
const ollamaMXFP4 = 4

// Alignment is the alignment of the tensors' data in bytes: that of files without general.alignment.
const Alignment = 32

// Padded returns the least multiple of Alignment from n on.
func Padded(n int64) int64 { return (n + Alignment - 1) / Alignment * Alignment }

// Header returns a file up to its data, padded. The data of each tensor follows in this order, padded.
func Header(pairs []Pair, tensors []Info) []byte {
	b := append([]byte("GGUF"), 3, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = appendValue(appendString(b, p.Key), p.Value)
	}
	offset := int64(0)
	for _, t := range tensors {
		b = binary.LittleEndian.AppendUint32(appendString(b, t.Name), uint32(len(t.Shape)))
		for i := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		number := types[t.DType]
		if t.Adjacent {
			number = ollamaMXFP4
		}
		b = binary.LittleEndian.AppendUint32(b, number)
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += Padded(t.Bytes())
	}
	return pad(b)
}

// File returns a whole file.
func File(pairs []Pair, tensors []weights.Tensor) []byte {
	var list []Info
	for _, t := range tensors {
		list = append(list, Info{t.Name, t.DType, t.Shape, t.Adjacent})
	}
	b := Header(pairs, list)
	for _, t := range tensors {
		b = pad(append(b, t.Data...))
	}
	return b
}

// pad appends zeros up to a multiple of Alignment.
func pad(b []byte) []byte { return append(b, make([]byte, Padded(int64(len(b)))-int64(len(b)))...) }

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendValue(b []byte, v any) []byte {
	kind := func(k uint32) []byte { return binary.LittleEndian.AppendUint32(b, k) }
	array := func(k uint32, n int) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(kind(9), k), uint64(n))
	}
	switch v := v.(type) {
	case uint32:
		return binary.LittleEndian.AppendUint32(kind(4), v)
	case float32:
		return binary.LittleEndian.AppendUint32(kind(6), math.Float32bits(v))
	case bool:
		if v {
			return append(kind(7), 1)
		}
		return append(kind(7), 0)
	case string:
		return appendString(kind(8), v)
	case []string:
		b = array(8, len(v))
		for _, s := range v {
			b = appendString(b, s)
		}
	case []float32:
		b = array(6, len(v))
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	case []int32:
		b = array(5, len(v))
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
	case []bool:
		b = array(7, len(v))
		for _, is := range v {
			if is {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	default:
		panic(fmt.Sprintf("no value of GGUF: %T", v))
	}
	return b
}
