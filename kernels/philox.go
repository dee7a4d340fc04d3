package kernels

// philox4x32 is the counter-based generator Philox4x32-10 of Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3", 2011: ten rounds that mix a
// counter under a key. Equal inputs give equal outputs on every device.
func philox4x32(counter [4]uint32, key [2]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	for range 10 {
		a, b := uint64(m0)*uint64(counter[0]), uint64(m1)*uint64(counter[2])
		counter = [4]uint32{
			uint32(b>>32) ^ counter[1] ^ key[0], uint32(b),
			uint32(a>>32) ^ counter[3] ^ key[1], uint32(a),
		}
		key[0] += w0
		key[1] += w1
	}
	return counter
}

// uniform is the random number of a token: a function of its request's seed and
// its index alone, in (0, 1).
func uniform(seed uint64, index int) float64 {
	r := philox4x32([4]uint32{uint32(index), uint32(uint64(index) >> 32), 0, 0}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return (float64(r[0]) + 0.5) / (1 << 32)
}
