package vec

// The functions of quantised_avx512_amd64.s and quantised_hf_avx512_amd64.s, with the arguments of those for AVX2.

//go:noescape
func dotsQ4_0AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ4_1AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ5_0AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ5_1AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ8_0AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ4_KAVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ5_KAVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsQ6_KAVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsIQ4_XSAVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsMXFP4AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsG4_32AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsG4_64AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsG4_128AVX512(out *float32, rows *byte, x *float32, blocks, n int)

//go:noescape
func dotsF8AVX512(out *float32, rows *byte, x *float32, blocks, n int)

// The function of dots16_avx512_amd64.s.

//go:noescape
func dotsF16AVX512(out *float32, rows *byte, x *float32, blocks, n int)
