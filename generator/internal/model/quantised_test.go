package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// hfConfig is a small Llama whose columns are multiples of 128, without its quantization_config.
const hfConfig = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":96,"hidden_size":128,
"intermediate_size":256,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
"max_position_embeddings":256,"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu","torch_dtype":"bfloat16",
"quantization_config":%s}`

// hfModel is a checkpoint that a test changes before it writes it.
type hfModel struct {
	base         string         // as hfConfig
	quantisation map[string]any // quantization_config
	tensors      map[string]weights.Tensor
}

// hfLayer writes the tensors of one linear layer, and returns its values by row and column.
type hfLayer func(r *rand.Rand, m hfModel, name string, rows, cols int) (value func(row, col int) float32)

// hfFormat is a way to quantise a checkpoint.
type hfFormat struct {
	quantisation string // quantization_config
	layer        hfLayer
}

var hfFormats = map[string]hfFormat{
	"float8 by row": {`{"quant_method":"compressed-tensors","format":"float-quantized","ignore":["lm_head"],
		"quantization_status":"compressed","kv_cache_scheme":null,"config_groups":{"group_0":{"targets":["Linear"],
		"weights":{"num_bits":8,"type":"float","strategy":"channel","dynamic":false,"symmetric":true,"group_size":null},
		"input_activations":{"num_bits":8,"type":"float","strategy":"token","dynamic":true}}}}`, float8Rows},
	"float8 by tile": {`{"quant_method":"fp8","activation_scheme":"dynamic","fmt":"e4m3","weight_block_size":[128,128],
		"modules_to_not_convert":["lm_head"]}`, float8Tiles},
	"packed": {`{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head"],"config_groups":{
		"group_0":{"targets":["Linear"],"input_activations":null,"weights":{"num_bits":4,"type":"int","symmetric":true,
		"strategy":"group","group_size":64,"actorder":"weight"}}}}`, packedLayer(64, false)},
	"packed with zero points": {`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
		"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":false,"strategy":"group",
		"group_size":32}}}}`, packedLayer(32, true)},
	"packed by row": {`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":{
		"weights":{"num_bits":4,"type":"int","strategy":"channel","group_size":-1}}}}`, packedLayer(0, false)},
	"mxfp4": {`{"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","config_groups":{"group_0":{
		"weights":{"num_bits":4,"type":"float","strategy":"group","group_size":32}}}}`, mxLayer},
	"awq": {`{"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm",
		"modules_to_not_convert":null}`, awqLayer},
	"gptq": {`{"quant_method":"gptq","bits":4,"group_size":64,"desc_act":false,"sym":false,"damp_percent":0.01,
		"checkpoint_format":"gptq","true_sequential":true}`, gptqLayer(64, 1)},
	"gptq_v2": {`{"quant_method":"gptq","bits":4,"group_size":-1,"desc_act":true,"static_groups":true,"sym":false,
		"checkpoint_format":"gptq_v2","meta":{"quantizer":["gptqmodel:2.2.0"]}}`, gptqLayer(0, 0)},
}

func (m hfModel) put(name string, d weights.DType, data []byte, shape ...int) {
	m.tensors[name] = weights.Tensor{Name: name, DType: d, Shape: shape, Data: data}
}

// floats writes a tensor of random float32, near mean.
func (m hfModel) floats(r *rand.Rand, name string, mean, deviation float64, shape ...int) []float32 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	values, data := make([]float32, n), make([]byte, 4*n)
	for i := range values {
		values[i] = float32(mean + deviation*r.NormFloat64())
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(values[i]))
	}
	m.put(name, weights.F32, data, shape...)
	return values
}

// codes writes a tensor of random bytes, and returns them.
func (m hfModel) codes(r *rand.Rand, name string, d weights.DType, shape ...int) []byte {
	n := d.Size()
	for _, k := range shape {
		n *= k
	}
	data := make([]byte, n)
	for i := range data {
		if data[i] = byte(r.Uint32()); d == weights.F8_E4M3 {
			data[i] &^= 8 // no NaN
		}
	}
	m.put(name, d, data, shape...)
	return data
}

// nibble returns code i of four bits, the low bits of each byte first.
func nibble(data []byte, i int) int { return int(data[i/2] >> (i % 2 * 4) & 15) }

func float8Rows(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
	q := m.codes(r, name+".weight", weights.F8_E4M3, rows, cols)
	s := m.floats(r, name+".weight_scale", 0, 0.001, rows, 1)
	return func(row, col int) float32 { return s[row] * e4m3(q[row*cols+col]) }
}

func float8Tiles(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
	q := m.codes(r, name+".weight", weights.F8_E4M3, rows, cols)
	s := m.floats(r, name+".weight_scale_inv", 0, 0.001, (rows+127)/128, cols/128)
	m.floats(r, name+".input_scale", 1, 0.1)
	return func(row, col int) float32 { return s[row/128*(cols/128)+col/128] * e4m3(q[row*cols+col]) }
}

func e4m3(code byte) float32 {
	v := math.Ldexp(1+float64(code&7)/8, int(code>>3&15)-7)
	if code>>3&15 == 0 {
		v = math.Ldexp(float64(code&7)/8, -6)
	}
	return float32(v) * float32(1-int(code>>7)*2)
}

func packedLayer(group int, zeros bool) hfLayer {
	return func(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
		size := group
		if size == 0 {
			size = cols
		}
		groups := cols / size
		q := m.codes(r, name+".weight_packed", weights.I32, rows, cols/8)
		s := m.floats(r, name+".weight_scale", 0, 0.01, rows, groups)
		m.put(name+".weight_shape", weights.I64, binary.LittleEndian.AppendUint64(
			binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(cols)), 2)
		z := func(row, g int) int { return 8 }
		if zeros {
			data := m.codes(r, name+".weight_zero_point", weights.I32, rows/8, groups)
			z = func(row, g int) int { return nibble(data, 8*(row/8*groups+g)+row%8) }
		}
		return func(row, col int) float32 {
			return s[row*groups+col/size] * float32(nibble(q, row*cols+col)-z(row, col/size))
		}
	}
}

func mxLayer(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
	q := m.codes(r, name+".weight_packed", weights.U8, rows, cols/2)
	e := m.codes(r, name+".weight_scale", weights.U8, rows, cols/32)
	for i := range e {
		e[i] = 118 + e[i]%4
	}
	return func(row, col int) float32 {
		code := nibble(q, row*cols+col)
		v := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7] * float64(1-code>>3*2)
		return float32(math.Ldexp(v, int(e[(row*cols+col)/32])-127))
	}
}

func awqLayer(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
	groups, place := cols/128, [8]int{0, 4, 1, 5, 2, 6, 3, 7} // of a row in a word
	q := m.codes(r, name+".qweight", weights.I32, cols, rows/8)
	z := m.codes(r, name+".qzeros", weights.I32, groups, rows/8)
	s := m.floats(r, name+".scales", 0, 0.01, groups, rows)
	return func(row, col int) float32 {
		at := func(line int) int { return line*rows + row - row%8 + place[row%8] }
		return s[col/128*rows+row] * float32(nibble(q, at(col))-nibble(z, at(col/128)))
	}
}

// gptqLayer has groups of that many columns, in reverse order, or one if it is 0. less is subtracted from each zero.
func gptqLayer(group, less int) hfLayer {
	return func(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
		size := group
		if size == 0 {
			size = cols
		}
		groups := cols / size
		q := m.codes(r, name+".qweight", weights.I32, cols/8, rows)
		z := m.codes(r, name+".qzeros", weights.I32, groups, rows/8)
		for i := range z {
			z[i] &= 0xee // less than 15, so that adding 1 has no carry
		}
		s := m.floats(r, name+".scales", 0, 0.01, groups, rows)
		order := make([]byte, 4*cols)
		of := func(col int) int { return groups - 1 - col/size }
		for col := range cols {
			binary.LittleEndian.PutUint32(order[4*col:], uint32(of(col)))
		}
		m.put(name+".g_idx", weights.I32, order, cols)
		m.put(name+".bias", weights.F32, make([]byte, 4*rows), rows) // some tools write these zeros
		return func(row, col int) float32 {
			zero := nibble(z, of(col)*rows+row) + less
			return s[of(col)*rows+row] * float32(nibble(q, 8*(col/8*rows+row)+col%8)-zero)
		}
	}
}

// newHFModel returns a random checkpoint in a format, and one of the float32 values of its matrices.
func newHFModel(t testing.TB, r *rand.Rand, f hfFormat) (m, plain hfModel) {
	t.Helper()
	return newHFModelAs(t, r, f, hfConfig)
}

// newHFModelAs is newHFModel with that config.json.
func newHFModelAs(t testing.TB, r *rand.Rand, f hfFormat, base string) (m, plain hfModel) {
	t.Helper()
	m = hfModel{base: base, tensors: map[string]weights.Tensor{}}
	plain = hfModel{base: base, tensors: map[string]weights.Tensor{}}
	if err := json.Unmarshal([]byte(f.quantisation), &m.quantisation); err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(fmt.Appendf(nil, base, "null"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range oneByOne(c) {
		if len(s.Shape) == 1 || !strings.Contains(s.Name, "_proj") {
			m.floats(r, s.Name, float64(2-len(s.Shape)), 0.2, s.Shape...)
			plain.tensors[s.Name] = m.tensors[s.Name]
			continue
		}
		value := f.layer(r, m, strings.TrimSuffix(s.Name, ".weight"), s.Shape[0], s.Shape[1])
		var data []byte
		for i := range s.Shape[0] * s.Shape[1] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value(i/s.Shape[1], i%s.Shape[1])))
		}
		plain.put(s.Name, weights.F32, data, s.Shape...)
	}
	return m, plain
}

// oneByOne lists the tensors of a checkpoint that has the experts of Gemma 4 one by one.
func oneByOne(c model.Config) (list []model.TensorSpec) {
	for _, s := range c.Tensors() {
		prefix, matrix, experts := strings.Cut(s.Name, "mlp.experts.")
		if !experts {
			list = append(list, s)
			continue
		}
		for e := range c.Experts.Count {
			s.Name = fmt.Sprintf("%sexperts.%d.%s", prefix, e, matrix)
			list = append(list, model.TensorSpec{Name: s.Name, Shape: []int{s.Shape[0] / c.Experts.Count, s.Shape[1]}})
		}
	}
	return list
}

// config returns config.json.
func (m hfModel) config() []byte {
	raw, err := json.Marshal(m.quantisation)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, m.base, raw)
}

// file returns model.safetensors.
func (m hfModel) file() []byte {
	header, at := map[string]any{}, 0
	names := slices.Sorted(maps.Keys(m.tensors))
	for _, name := range names {
		x := m.tensors[name]
		header[name] = map[string]any{"dtype": x.DType.String(), "shape": append([]int{}, x.Shape...),
			"data_offsets": []int{at, at + len(x.Data)}}
		at += len(x.Data)
	}
	raw, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)
	for _, name := range names {
		data = append(data, m.tensors[name].Data...)
	}
	return data
}

// openHF reads a checkpoint as the generator does before it loads.
func openHF(config, file []byte) (c model.Config, tensors model.Tensors, err error) {
	if c, err = model.ParseConfig(config, nil); err != nil {
		return c, nil, err
	}
	w, err := weights.Open(fstest.MapFS{"model.safetensors": {Data: file}})
	if err != nil {
		return c, nil, err
	}
	if tensors, err = c.Published(w); err == nil {
		err = c.CheckTensors(tensors)
	}
	return c, tensors, err
}

// permuted returns a GPTQ checkpoint whose columns are in activation order: column j of each matrix of m becomes column
// order[j], and so do the codes, so that the values of the columns are those of plain in another order.
func (m hfModel) permuted(r *rand.Rand, plain hfModel) {
	for name, x := range plain.tensors {
		layer, quantised := strings.CutSuffix(name, ".weight")
		q, codes := m.tensors[layer+".g_idx"], m.tensors[layer+".qweight"]
		if !quantised || q.Data == nil {
			continue
		}
		rows, cols := x.Shape[0], x.Shape[1]
		groups, words, values := make([]byte, len(q.Data)), make([]byte, len(codes.Data)), make([]byte, len(x.Data))
		for from, to := range r.Perm(cols) {
			copy(groups[4*to:4*to+4], q.Data[4*from:])
			for row := range rows {
				copy(values[4*(row*cols+to):][:4], x.Data[4*(row*cols+from):])
				code := byte(nibble(codes.Data, 8*(from/8*rows+row)+from%8))
				words[4*(to/8*rows+row)+to%8/2] |= code << (to % 2 * 4)
			}
		}
		m.put(layer+".g_idx", weights.I32, groups, cols)
		m.put(layer+".qweight", weights.I32, words, codes.Shape...)
		plain.put(name, weights.F32, values, rows, cols)
	}
}

// A checkpoint in activation order gives the logits of its values, within the error of another order of sums.
func TestActivationOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 24))
	m, plain := newHFModel(t, r, hfFormats["gptq"])
	m.permuted(r, plain)
	c, tensors, err := openHF(m.config(), m.file())
	if err != nil {
		t.Fatal(err)
	}
	pc, values, err := openHF(plain.config(), plain.file())
	if err != nil {
		t.Fatal(err)
	}
	if c.Ordered(tensors) == "" || pc.Ordered(values) != "" {
		t.Error("the columns are in order")
	}
	tokens := []int32{3, 14, 15, 92, 6, 53, 58}
	got, want := run(t, c, tensors, tokens), run(t, pc, values, tokens)
	for i := range want {
		if e := relativeError(got[i], want[i]); e > 1e-5 {
			t.Errorf("logits %d differ by %.1e", i, e)
		}
	}
}

// A converted matrix whose rows are put in order, because RoPE rotates a part of each head or neighbours, gives the
// logits of its values, bit for bit.
func TestConvertedRowsInOrder(t *testing.T) {
	m, plain := newHFModel(t, rand.New(rand.NewPCG(rand.Uint64(), 24)), hfFormats["gptq"])
	c, tensors, err := openHF(m.config(), m.file())
	if err != nil {
		t.Fatal(err)
	}
	pc, values, err := openHF(plain.config(), plain.file())
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{3, 14, 15, 92, 6, 53, 58}
	whole := run(t, pc, values, tokens)
	c.Rotated, pc.Rotated, c.Interleaved, pc.Interleaved = c.HeadDim/2, c.HeadDim/2, true, true
	got, want := run(t, c, tensors, tokens), run(t, pc, values, tokens)
	for i := range want {
		if !slices.Equal(got[i], want[i]) || slices.Equal(whole[i], want[i]) {
			t.Fatalf("logits %d are %v, want %v", i, got[i][:4], want[i][:4])
		}
	}
}

// A quantised checkpoint of each format gives the logits of a checkpoint of its float32 values, bit for bit.
func TestQuantisedCheckpointsEqualTheirValues(t *testing.T) {
	tokens := []int32{3, 14, 15, 92, 6, 53, 58}
	for name, f := range hfFormats {
		t.Run(name, func(t *testing.T) {
			m, plain := newHFModel(t, rand.New(rand.NewPCG(rand.Uint64(), 24)), f)
			c, tensors, err := openHF(m.config(), m.file())
			if err != nil {
				t.Fatal(err)
			}
			pc, values, err := openHF(plain.config(), plain.file())
			if err != nil {
				t.Fatal(err)
			}
			made, sources := c.Converted(tensors)
			if made < 128*1024/2 || sources < made/2 || !c.Quantised(tensors) {
				t.Errorf("%d bytes are made of %d", made, sources)
			}
			got, want := run(t, c, tensors, tokens), run(t, pc, values, tokens)
			for i := range want {
				if !slices.Equal(got[i], want[i]) || slices.Max(want[i])-slices.Min(want[i]) < 0.1 {
					t.Fatalf("logits %d are %v, want %v", i, got[i][:4], want[i][:4])
				}
			}
		})
	}
}

// A checkpoint may have scales of keys and values, also for an attention whose matrices are floats. They are left out. Such
// scales elsewhere are refused.
func TestScalesOfKeysAndValues(t *testing.T) {
	const attention = "model.layers.0.self_attn"
	r := rand.New(rand.NewPCG(24, 7))
	m, plain := newHFModel(t, r, hfFormats["float8 by row"])
	m.floats(r, attention+".k_scale", 1, 0.1, 1)
	m.floats(r, attention+".v_scale", 1, 0.1, 1)
	opens := func(what string, want error) {
		if _, _, err := openHF(m.config(), m.file()); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	opens("codes", nil)
	for _, matrix := range []string{".q_proj", ".k_proj", ".v_proj", ".o_proj"} {
		name := attention + matrix + ".weight"
		m.tensors[name] = plain.tensors[name]
		delete(m.tensors, name+"_scale")
		delete(m.tensors, attention+matrix+".input_scale")
	}
	opens("floats", nil)
	m.floats(r, "model.layers.0.mlp.k_scale", 1, 0.1, 1)
	opens("a feed-forward", model.ErrTensor)
}
