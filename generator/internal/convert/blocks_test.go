package convert

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

// vectorFormats are the formats of testdata/vectors.bin, in its order.
var vectorFormats = []weights.DType{weights.Q8_0, weights.Q4_0, weights.Q5_0, weights.Q5_1, weights.Q4_K, weights.Q5_K,
	weights.Q6_K}

// vectors returns the rows of testdata/vectors.bin, and their blocks by format.
func vectors(t *testing.T) (x []float32, blocks map[weights.DType][]byte) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.bin")
	if err != nil {
		t.Fatal(err)
	}
	x, data = make([]float32, 256*binary.LittleEndian.Uint32(data)), data[4:]
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	data, blocks = data[4*len(x):], map[weights.DType][]byte{}
	for _, d := range vectorFormats {
		n := d.Bytes(len(x))
		blocks[d], data = data[:n], data[n:]
	}
	if len(data) > 0 {
		t.Fatalf("%d bytes too many", len(data))
	}
	return x, blocks
}

// Blocks equal the reference's, bit for bit: rows of weights, large ones, ones of one sign, ties, zeros, subnormals.
func TestBlocksEqualTheReference(t *testing.T) {
	x, blocks := vectors(t)
	for _, d := range vectorFormats {
		elements, size := d.Block()
		got, faults := make([]byte, len(blocks[d])), 0
		for i := range got {
			got[i] = 0xaa // encode clears it
		}
		encode(got, d, x)
		for at := 0; at < len(got); at += size {
			if !bytes.Equal(got[at:at+size], blocks[d][at:at+size]) {
				if faults++; faults <= 3 {
					from := at / size * elements
					t.Errorf("%v: block %d of row %d is\n%x, wants\n%x for\n%v", d, from%256/elements, from/256,
						got[at:at+size], blocks[d][at:at+size], x[from:from+elements])
				}
			}
		}
		t.Logf("%v: %d of %d blocks differ", d, faults, len(got)/size)
	}
}

// half is the inverse of kernels.Float16, and rounds what lies between two values to the nearest, ties to even.
func TestHalf(t *testing.T) {
	for b := range uint16(0x7c00) { // the finite ones from 0 on
		v := kernels.Float16(b)
		next := 2*v - kernels.Float16(max(b, 1)-1) // 65536 after the last
		if b < 0x7bff {
			next = kernels.Float16(b + 1)
		}
		middle := v/2 + next/2
		tie := b + b&1
		for _, c := range []struct {
			v    float32
			want uint16
		}{{v, b}, {middle, tie}, {math.Nextafter32(middle, 0), b}, {math.Nextafter32(middle, 1e9), b + 1}} {
			if b == 0 && c.v < 0 {
				continue
			}
			if got := half(c.v); got != c.want {
				t.Fatalf("%g is %#x, wants %#x", c.v, got, c.want)
			}
			if got := half(-c.v); got != c.want|0x8000 {
				t.Fatalf("-%g is %#x, wants %#x", c.v, got, c.want|0x8000)
			}
		}
	}
}

// BenchmarkEncode measures how fast one processor makes blocks.
func BenchmarkEncode(b *testing.B) {
	x := make([]float32, 1<<14)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i))) / 50
	}
	for _, d := range vectorFormats {
		out := make([]byte, d.Bytes(len(x)))
		b.Run(d.String(), func(b *testing.B) {
			for b.Loop() {
				encode(out, d, x)
			}
			b.ReportMetric(float64(len(x))*float64(b.N)/1e6/b.Elapsed().Seconds(), "Melements/s")
		})
	}
}
