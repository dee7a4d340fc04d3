package convert

import "math"

// The formats with blocks of 256 elements in 8 groups of 32, each with a scale and a minimum of six bits: an element
// is d·scale·code − dmin·minimum. Their layouts are at their decoders, in package kernels.

// groupSize is the number of elements that share a scale and a minimum.
const groupSize = 32

// groupFit are the constants of the search for the scale and the minimum of a group.
type groupFit struct {
	codes float32 // the largest code
	first float32 // added to codes in the first trial
	steps int     // trials after it, each with 0.1 more
}

var (
	fitQ4_K = groupFit{codes: 15, first: -1, steps: 20}
	fitQ5_K = groupFit{codes: 31, first: -0.5, steps: 15}
)

// encodeQ4_K finds the scales and minima, then the codes.
func encodeQ4_K(block []byte, x []float32) {
	var codes [256]byte
	encodeGroups(block, &codes, x, fitQ4_K)
	for pair := range 4 {
		for j := range groupSize {
			block[16+32*pair+j] = codes[64*pair+j] | codes[64*pair+32+j]<<4
		}
	}
}

// encodeQ5_K is Q4_K with five bits: bit g of byte j of 32 is the highest of code j of group g.
func encodeQ5_K(block []byte, x []float32) {
	var codes [256]byte
	encodeGroups(block, &codes, x, fitQ5_K)
	for i, c := range codes {
		g, j := i/groupSize, i%groupSize
		block[16+j] |= c >> 4 << g
		block[48+32*(g/2)+j] |= c & 15 << (g % 2 * 4)
	}
}

// encodeGroups writes the scales and minima of a block, and finds its codes with them.
func encodeGroups(block []byte, codes *[256]byte, x []float32, fit groupFit) {
	var scales, minima [8]float32
	for g := range scales {
		scales[g], minima[g] = fit.group((*[groupSize]float32)(x[groupSize*g:]), codes[groupSize*g:])
	}
	scale, minimum := putScales(block, &scales, &minima)
	for g := range scales {
		if scale[g] == 0 {
			continue // the codes of the fit stay
		}
		for j, v := range x[groupSize*g:][:groupSize] {
			code := nearest((v + minimum[g]) / scale[g])
			codes[groupSize*g+j] = byte(min(max(code, 0), int(fit.codes)))
		}
	}
}

// putScales rounds scales and minima to multiples of d and dmin, their largest over 63, and writes all. It returns
// the numbers that a decoder reads.
func putScales(block []byte, scales, minima *[8]float32) (scale, minimum [8]float32) {
	var code [2][8]byte
	for i, list := range []*[8]float32{scales, minima} {
		most := float32(0)
		for _, v := range list {
			if v > most {
				most = v
			}
		}
		inverse := float32(0)
		if most > 0 {
			inverse = 63 / most
		}
		putHalf(block[2*i:], most/63)
		for g, v := range list {
			code[i][g] = min(63, byte(nearest(inverse*v)))
		}
	}
	packSixes(block[4:16], &code[0], &code[1])
	d, dmin := halfValue(block), halfValue(block[2:])
	for g := range scale {
		scale[g], minimum[g] = float32(d*float32(code[0][g])), float32(dmin*float32(code[1][g]))
	}
	return scale, minimum
}

// packSixes packs eight scales and eight minima of six bits into 12 bytes: those of the first four groups whole, of
// the others the low four bits together, and their high bits above the first four.
func packSixes(b []byte, scales, minima *[8]byte) {
	for g := range 4 {
		b[g] = scales[g] | scales[g+4]>>4<<6
		b[g+4] = minima[g] | minima[g+4]>>4<<6
		b[g+8] = scales[g+4]&15 | minima[g+4]<<4
	}
}

// group returns the scale and the minimum, subtracted from codes times scale, that give a group the least weighted
// squared error among some trials, and writes the codes. An element's weight is its absolute value plus the root mean
// square of the group. Each trial stretches the range of codes a little, rounds, and solves for scale and minimum by
// weighted least squares. (ggml: make_qkx2_quants.)
func (f groupFit) group(x *[groupSize]float32, codes []byte) (scale, minimum float32) {
	s := weigh(x)
	least, most := bounds(x)
	if least > 0 {
		least = 0
	}
	if most == least {
		clear(codes[:groupSize])
		return 0, -least
	}
	var best, trial [groupSize]float32
	f.round(&best, x, least, f.codes/(most-least))
	scale = 1 / (f.codes / (most - least))
	lowest := s.error(&best, x, scale, least)
	for step := range f.steps + 1 {
		f.round(&trial, x, least, (f.first+float32(0.1*float32(step))+f.codes)/(most-least))
		a, b, ok := s.solve(&trial, x)
		if !ok {
			continue
		}
		if e := s.error(&trial, x, a, b); e < lowest {
			best, lowest, scale, least = trial, e, a, b
		}
	}
	for j, c := range best {
		codes[j] = byte(c)
	}
	return scale, -least
}

// bounds returns the least and the largest element, of equal ones the first.
func bounds(x *[groupSize]float32) (least, most float32) {
	least, most = x[0], x[0]
	for _, v := range x {
		if v < least {
			least = v
		}
		if v > most {
			most = v
		}
	}
	return least, most
}

// round writes the codes of x, whole numbers.
func (f groupFit) round(codes, x *[groupSize]float32, least, inverse float32) {
	for j, v := range x {
		codes[j] = float32(min(max(nearest(inverse*(v-least)), 0), int(f.codes)))
	}
}

// groupSums are the weights of a group's elements, their sum, and the weighted sum of the elements.
type groupSums struct {
	weight [groupSize]float32
	w, x   float32
}

// weigh returns the weights of x.
func weigh(x *[groupSize]float32) *groupSums {
	squares := float32(0)
	for _, v := range x {
		squares += float32(v * v)
	}
	mean := float32(math.Sqrt(float64(squares / groupSize)))
	var s groupSums
	for j, v := range x {
		w := mean + abs(v)
		s.weight[j] = w
		s.w += w
		s.x += float32(w * v)
	}
	return &s
}

// error returns the weighted squared error of scale·code + least.
func (s *groupSums) error(codes, x *[groupSize]float32, scale, least float32) (sum float32) {
	for j, v := range x {
		d := float32(scale*codes[j]) + least - v
		sum += float32(s.weight[j] * float32(d*d))
	}
	return sum
}

// solve returns the scale and the minimum, at most 0, with the least error for these codes. ok is false if all codes
// are the same.
func (s *groupSums) solve(codes, x *[groupSize]float32) (scale, least float32, ok bool) {
	var l, l2, xl float32
	for j, v := range x {
		wl := float32(s.weight[j] * codes[j])
		l += wl
		l2 += float32(wl * codes[j])
		xl += float32(wl * v)
	}
	determinant := float32(s.w*l2) - float32(l*l)
	if !(determinant > 0) {
		return 0, 0, false
	}
	scale = (float32(s.w*xl) - float32(s.x*l)) / determinant
	least = (float32(l2*s.x) - float32(l*xl)) / determinant
	if least > 0 {
		scale, least = xl/l2, 0
	}
	return scale, least, true
}
