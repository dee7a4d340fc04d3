package vec

import "golang.org/x/sys/cpu"

// useQuantised reports whether the loops of quantised formats run. All processors with AVX2 have F16C; a virtual
// machine may hide it.
func useQuantised() bool { return useAVX2 && cpu.X86.HasF16C }

// fastest returns the loop for dot products that the processor runs fastest.
func (l *blockLoops) fastest() dotsFunc {
	if useAVX512 {
		return l.dotsAVX512
	}
	return l.dots
}

var (
	loopsQ4_0   = blockLoops{decodeQ4_0AVX2, dotsQ4_0AVX2, dotsQ4_0AVX512}
	loopsQ4_1   = blockLoops{decodeQ4_1AVX2, dotsQ4_1AVX2, dotsQ4_1AVX512}
	loopsQ5_0   = blockLoops{decodeQ5_0AVX2, dotsQ5_0AVX2, dotsQ5_0AVX512}
	loopsQ5_1   = blockLoops{decodeQ5_1AVX2, dotsQ5_1AVX2, dotsQ5_1AVX512}
	loopsQ8_0   = blockLoops{decodeQ8_0AVX2, dotsQ8_0AVX2, dotsQ8_0AVX512}
	loopsQ4_K   = blockLoops{decodeQ4_KAVX2, dotsQ4_KAVX2, dotsQ4_KAVX512}
	loopsQ5_K   = blockLoops{decodeQ5_KAVX2, dotsQ5_KAVX2, dotsQ5_KAVX512}
	loopsQ6_K   = blockLoops{decodeQ6_KAVX2, dotsQ6_KAVX2, dotsQ6_KAVX512}
	loopsIQ4_XS = blockLoops{decodeIQ4_XSAVX2, dotsIQ4_XSAVX2, dotsIQ4_XSAVX512}
	loopsMXFP4  = blockLoops{decodeMXFP4AVX2, dotsMXFP4AVX2, dotsMXFP4AVX512}
	loopsG4_32  = blockLoops{decodeG4_32AVX2, dotsG4_32AVX2, dotsG4_32AVX512}
	loopsG4_64  = blockLoops{decodeG4_64AVX2, dotsG4_64AVX2, dotsG4_64AVX512}
	loopsG4_128 = blockLoops{decodeG4_128AVX2, dotsG4_128AVX2, dotsG4_128AVX512}
	loopsF8     = blockLoops{decodeF8AVX2, dotsF8AVX2, dotsF8AVX512}

	loopsBF16 = blockLoops{decode: widenBF16AVX2}
	loopsF16  = blockLoops{widenF16AVX2, dotsF16AVX2, dotsF16AVX512}
)

// The functions of quantised_amd64.s and quantised_hf_amd64.s. y, x and row have whole blocks, at least one; dots takes
// n rows, at least one.

//go:noescape
func decodeQ4_0AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ4_0AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ4_1AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ4_1AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ5_0AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ5_0AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ5_1AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ5_1AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ8_0AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ8_0AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ4_KAVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ4_KAVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ5_KAVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ5_KAVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeQ6_KAVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsQ6_KAVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeIQ4_XSAVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsIQ4_XSAVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeMXFP4AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsMXFP4AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeG4_32AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsG4_32AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeG4_64AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsG4_64AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeG4_128AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsG4_128AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func decodeF8AVX2(y *float32, row *byte, blocks int)

//go:noescape
func dotsF8AVX2(out *float32, rows *byte, x *float32, blocks, n int)

// The functions of dots16_amd64.s and widen_amd64.s.

//go:noescape
func dotsF16AVX2(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func widenBF16AVX2(y *float32, row *byte, blocks int)

//go:noescape
func widenF16AVX2(y *float32, row *byte, blocks int)
