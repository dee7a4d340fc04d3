package vec

// Quantised holds the loops of a quantised format in assembly. A row is whole blocks, whose elements share scales. The
// dot product of a row is [Dot] of its values, bit for bit. The decoders in Go are package kernels'.
type Quantised struct {
	elements, bytes int // of a block
	loops           *blockLoops
}

// blockLoops are the functions in assembly. All numbers of blocks and rows are above 0.
type blockLoops struct {
	decode           func(y *float32, row *byte, blocks int)
	dots, dotsAVX512 dotsFunc
}

type dotsFunc func(out *float32, rows *byte, x *float32, blocks, n int)

// The formats. Package kernels describes their blocks.
var (
	Q4_0   = Quantised{32, 18, &loopsQ4_0}
	Q4_1   = Quantised{32, 20, &loopsQ4_1}
	Q5_0   = Quantised{32, 22, &loopsQ5_0}
	Q5_1   = Quantised{32, 24, &loopsQ5_1}
	Q8_0   = Quantised{32, 34, &loopsQ8_0}
	Q4_K   = Quantised{256, 144, &loopsQ4_K}
	Q5_K   = Quantised{256, 176, &loopsQ5_K}
	Q6_K   = Quantised{256, 210, &loopsQ6_K}
	IQ4_XS = Quantised{256, 136, &loopsIQ4_XS}
	MXFP4  = Quantised{32, 17, &loopsMXFP4}
	F8     = Quantised{128, 132, &loopsF8}
	G4_32  = Quantised{32, 21, &loopsG4_32}
	G4_64  = Quantised{64, 37, &loopsG4_64}
	G4_128 = Quantised{128, 69, &loopsG4_128}

	// Rows of 16-bit numbers are taken as blocks of 16. Those of bfloat16 have no dot products of this kind, but
	// [ProductsBF16].
	RowBF16 = Quantised{16, 32, &loopsBF16}
	RowF16  = Quantised{16, 32, &loopsF16}
)

// Decode writes the values of row to y. It returns false if y has no whole blocks, or the machine no loop for them;
// then it has done nothing.
func (q *Quantised) Decode(y []float32, row []byte) bool {
	blocks := len(y) / q.elements
	if !useQuantised() || len(y)%q.elements != 0 {
		return false
	}
	row = row[: blocks*q.bytes : len(row)]
	if blocks > 0 {
		q.loops.decode(&y[0], &row[0], blocks)
	}
	return true
}

// Dots sets out[i] to the dot product of row i of rows and x. It returns false if x has no whole blocks, or the machine
// no loop for them; then it has done nothing.
func (q *Quantised) Dots(out []float32, rows []byte, x []float32) bool {
	blocks := len(x) / q.elements
	if !useQuantised() || q.loops.dots == nil || blocks == 0 || len(x)%q.elements != 0 {
		return false
	}
	rows = rows[: len(out)*blocks*q.bytes : len(rows)]
	if len(out) > 0 {
		q.loops.fastest()(&out[0], &rows[0], &x[0], blocks, len(out))
	}
	return true
}
