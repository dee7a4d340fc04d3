package model_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels"
)

// scales are where a quantised format has its scale and its minimum, as float16, and the ratio between them for which
// random blocks have the mean 0. MXFP4 has an exponent instead.
var scales = map[weights.DType]struct {
	format         kernels.DType
	scale, minimum int
	ratio          float64
}{
	weights.Q4_0: {kernels.Q4_0, 0, 0, 0}, weights.Q4_1: {kernels.Q4_1, 0, 2, -7.5},
	weights.Q5_0: {kernels.Q5_0, 0, 0, 0}, weights.Q5_1: {kernels.Q5_1, 0, 2, -15.5},
	weights.Q8_0: {kernels.Q8_0, 0, 0, 0}, weights.Q4_K: {kernels.Q4_K, 0, 2, 7.5},
	weights.Q5_K: {kernels.Q5_K, 0, 2, 15.5}, weights.Q6_K: {kernels.Q6_K, 208, 0, 0},
	weights.IQ4_XS: {kernels.IQ4_XS, 0, 0, 0}, weights.MXFP4: {kernels.MXFP4, 0, 0, 0},
}

// float16 returns the bits of a power of two times 1 to 2.
func float16(v float64) uint16 {
	fraction, exponent := math.Frexp(math.Abs(v))
	bits := uint16(exponent+14)<<10 + uint16(math.Round((2*fraction-1)*1024))
	return bits | uint16(math.Float64bits(v)>>48)&0x8000
}

// setScale sets a block's scale, and its minimum.
func setScale(block []byte, d weights.DType, scale float64) {
	s := scales[d]
	if d == weights.MXFP4 {
		block[0] = byte(127 + math.Round(math.Log2(math.Abs(scale))))
		return
	}
	if s.ratio != 0 {
		binary.LittleEndian.PutUint16(block[s.minimum:], float16(scale*s.ratio))
	}
	binary.LittleEndian.PutUint16(block[s.scale:], float16(scale))
}

// values returns the elements of blocks.
func values(d weights.DType, blocks []byte) []float32 {
	elements, bytes := d.Block()
	y := make([]float32, len(blocks)/bytes*elements)
	scales[d].format.Decode(y, blocks)
	return y
}

// spread is the mean square of the elements of random blocks with a scale of 1.
var spread = func() map[weights.DType]float64 {
	all := map[weights.DType]float64{}
	for d := range scales {
		all[d] = meanSquare(d)
	}
	return all
}()

func meanSquare(d weights.DType) float64 {
	_, bytes := d.Block()
	blocks, r, sum := make([]byte, 64*bytes), rand.New(rand.NewPCG(24, 0)), 0.0
	fill(r, blocks)
	for at := 0; at < len(blocks); at += bytes {
		setScale(blocks[at:], d, 1)
	}
	all := values(d, blocks)
	for _, v := range all {
		sum += float64(v) * float64(v)
	}
	return sum / float64(len(all))
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// random is a model of random tensors. Matrices have the format that pick returns for their name: blocks of random
// codes. The tensor of a name is the same in each form.
type random struct {
	c    model.Config
	pick func(name string) weights.DType
	as   weights.DType // F32: the values of the blocks; BF16: these rounded; 0: the blocks
	seed uint64
	made map[string]weights.Tensor
}

func newRandom(c model.Config, pick func(string) weights.DType, as weights.DType) random {
	return random{c, pick, as, 24, map[string]weights.Tensor{}}
}

func (w random) Names() (names []string) {
	for _, s := range w.c.Tensors() {
		names = append(names, s.Name)
	}
	return names
}

func (w random) Tensor(name string) (weights.Tensor, error) {
	if t, ok := w.made[name]; ok {
		return t, nil
	}
	list := w.c.Tensors()
	i := slices.IndexFunc(list, func(s model.TensorSpec) bool { return s.Name == name })
	if i < 0 {
		return weights.Tensor{}, weights.ErrMissing
	}
	hash := fnv.New64()
	fmt.Fprint(hash, name)
	r := rand.New(rand.NewPCG(hash.Sum64(), w.seed))
	if len(list[i].Shape) == 1 {
		w.made[name] = vector(r, list[i])
	} else {
		w.made[name] = w.matrix(r, list[i])
	}
	return w.made[name], nil
}

// vector returns weights of a norm, near 1, or biases.
func vector(r *rand.Rand, s model.TensorSpec) weights.Tensor {
	t := weights.Tensor{Name: s.Name, DType: weights.F32, Shape: s.Shape}
	for range s.Shape[0] {
		v := float32(r.NormFloat64()) / 4
		if strings.Contains(s.Name, "norm") {
			v++
		}
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// matrix returns blocks whose elements have a variance of about 1/columns, or their values. Scales have both signs: codes
// need not have the mean 0, and rows that agree on a sign would give all columns of a hidden state the same value.
func (w random) matrix(r *rand.Rand, s model.TensorSpec) weights.Tensor {
	d := w.pick(s.Name)
	_, size := d.Block()
	t := weights.Tensor{Name: s.Name, DType: d, Shape: s.Shape, Data: make([]byte, d.Bytes(s.Shape[0]*s.Shape[1]))}
	fill(r, t.Data)
	usual := 1 / math.Sqrt(float64(s.Shape[1])*spread[d])
	for at := 0; at < len(t.Data); at += size {
		setScale(t.Data[at:], d, usual*math.Exp2(r.Float64()-0.5)*float64(1-2*r.IntN(2)))
	}
	if w.as == 0 {
		return t
	}
	elements := values(d, t.Data)
	t.DType, t.Data = w.as, nil
	for _, v := range elements {
		if w.as == weights.BF16 {
			t.Data = binary.LittleEndian.AppendUint16(t.Data, bfloat16(v))
			continue
		}
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// wide returns shapes of the architectures, whose rows are whole blocks of every format.
func wide() map[string]model.Config {
	llama := model.Config{Name: "llama", Vocab: 128, Hidden: 256, Inner: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64,
		Context: 128, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
	qwen2, qwen3, phi3 := llama, llama, llama
	qwen2.Name, qwen2.Bias, qwen2.TiedHead = "qwen2", true, false
	qwen3.Name, qwen3.HeadNorms, qwen3.RoPETheta = "qwen3", true, 1e6
	phi3.Name, phi3.FusedQKV, phi3.FusedGateUp, phi3.KVHeads, phi3.TiedHead, phi3.Rotated = "phi3", true, true, 4, false, 48
	phi3.RoPE = model.RoPEScaling{Kind: model.LongRoPE, Original: 64, Attention: 1.125}
	for i := range 24 { // those of Phi-4-mini have the same form
		phi3.ShortFactors, phi3.LongFactors = append(phi3.ShortFactors, 1), append(phi3.LongFactors, 1+float32(i)/4)
	}
	return map[string]model.Config{"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "phi3": phi3}
}

// picks returns how matrices are quantised: all in one format, or as Q4_K_M mixes them.
func picks() map[string]func(string) weights.DType {
	all := map[string]func(string) weights.DType{"Q4_K_M": func(name string) weights.DType {
		if strings.Contains(name, "embed") || strings.Contains(name, "lm_head") || strings.Contains(name, "1.mlp.down") ||
			strings.Contains(name, "1.self_attn.v") {
			return weights.Q6_K
		}
		return weights.Q4_K
	}}
	for d := range scales {
		all[d.String()] = func(string) weights.DType { return d }
	}
	return all
}

// Logits of models in each quantised format, of each architecture, read from GGUF, equal those of the float32 values of
// their blocks, bit for bit. Beside a reference in float64 their error is at most 1.1 times that of the same values in
// bfloat16, whose products are exact in float32 too.
func TestFormatsEqualTheirValues(t *testing.T) {
	var quantised, rounded, n float64 // sums of squares of relative errors, and their number
	for i, name := range slices.Sorted(maps.Keys(wide())) {
		c := wide()[name]
		t.Run(name, func(t *testing.T) {
			formats := slices.Sorted(maps.Keys(picks()))
			for k, format := range formats {
				if os.Getenv("REEL_LONG") == "" && k%len(wide()) != i { // each format with one architecture
					continue
				}
				q, b := compareFormat(t, c, format, picks()[format])
				quantised, rounded, n = quantised+q, rounded+b, n+1
			}
		})
	}
	t.Logf("error %.2e, of bfloat16 %.2e", math.Sqrt(quantised/n), math.Sqrt(rounded/n))
	if !(quantised <= 1.1*1.1*rounded) && n > 40 || !(quantised/n < 1e-12) { // fewer say little
		t.Errorf("error %.2e, of bfloat16 %.2e", math.Sqrt(quantised/n), math.Sqrt(rounded/n))
	}
}

// compareFormat returns the mean squares of the relative errors of the blocks and of their values in bfloat16.
func compareFormat(t *testing.T, c model.Config, format string, pick func(string) weights.DType) (q, b float64) {
	t.Helper()
	blocks := newRandom(c, pick, 0)
	got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, blocks, same(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Quantised(tensors) {
		t.Errorf("%s is not quantised", format)
	}
	floats, half := newRandom(c, pick, weights.F32), newRandom(c, pick, weights.BF16)
	tokens := []int32{5, 99, 0, 127, 5}
	logits, plain := run(t, got, tensors, tokens), run(t, c, floats, tokens)
	for i := range logits {
		if !slices.Equal(logits[i], plain[i]) {
			t.Errorf("%s: logits %d differ from those of the values by %.1e", format, i, relativeError(logits[i], plain[i]))
		}
	}
	return inexact(t, c, floats, tokens, plain), inexact(t, c, half, tokens, run(t, c, half, tokens))
}

// inexact returns the mean square of the relative errors of logits after tokens and after those that were sampled.
func inexact(t *testing.T, c model.Config, w model.Tensors, tokens []int32, logits [][]float32) (sum float64) {
	t.Helper()
	sequence := slices.Clone(tokens)
	for i := range logits[1:] {
		sequence = append(sequence, argmax(logits[i]))
	}
	c.RoPEDivisors = c.LongFactors
	want := newExact(t, c, w).logits(sequence)[len(tokens)-1:]
	for i := range logits {
		e := relativeError64(logits[i], want[i])
		sum += e * e / float64(len(logits))
	}
	return sum
}

// relativeError64 is relativeError beside float64.
func relativeError64(got []float32, want []float64) float64 {
	var diff, size float64
	for i := range want {
		d := float64(got[i]) - want[i]
		diff += d * d
		size += want[i] * want[i]
	}
	return math.Sqrt(diff / size)
}

func argmax(x []float32) (best int32) {
	for i := range x {
		if x[i] > x[best] {
			best = int32(i)
		}
	}
	return best
}
