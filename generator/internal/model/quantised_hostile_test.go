package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// hostileErrors are those that a hostile checkpoint may end in.
var hostileErrors = []error{model.ErrUnsupported, model.ErrTensor, weights.ErrMissing, weights.ErrTruncated,
	weights.ErrHeader, weights.ErrTooLarge, weights.ErrDType, weights.ErrShape, weights.ErrRange,
	weights.ErrQuantised, weights.ErrActOrder, weights.ErrNotFinite}

func typed(err error) bool {
	return slices.ContainsFunc(hostileErrors, func(e error) bool { return errors.Is(err, e) })
}

// hostileValues replace values of quantization_config.
var hostileValues = []any{nil, 0, -1, -2, 1, 3, 16, 48, 1 << 20, 1<<20 + 1, 1 << 62, 1e300, 0.5, true, "", "gemm", "fp8",
	"gptq_v2", "channel", "x", []any{}, []any{0, 0}, []any{-1, 128}, []any{1 << 40, 1 << 40}, map[string]any{},
	map[string]any{"format": "x"}}

// hostileSizes replace dimensions.
var hostileSizes = []int{0, 1, 2, 7, 8, 31, 32, 127, 128, 129, 1 << 20, 1 << 31, 1 << 40, 1<<63 - 1}

// spoil changes one thing of a checkpoint. Most changes make it wrong.
func (m hfModel) spoil(r *rand.Rand) {
	name := slices.Sorted(maps.Keys(m.tensors))[r.IntN(len(m.tensors))]
	x := m.tensors[name]
	types := []weights.DType{weights.BF16, weights.F16, weights.F32, weights.F8_E4M3, weights.U8, weights.I32, weights.I64}
	switch r.IntN(8) {
	case 0:
		spoilObject(r, m.quantisation)
		return
	case 1:
		delete(m.tensors, name)
		return
	case 2: // another shape with its bytes
		x.Shape = append([]int{}, x.Shape...)
		if len(x.Shape) == 0 {
			x.Shape = []int{1}
		}
		x.Shape[r.IntN(len(x.Shape))] = hostileSizes[r.IntN(8)]
		x.Data = make([]byte, bytesOf(x))
	case 3: // a shape that the bytes do not have
		x.Shape = append([]int{}, x.Shape...)
		x.Shape = append(x.Shape, hostileSizes[r.IntN(len(hostileSizes))])
	case 4: // another type with its bytes
		x.DType = types[r.IntN(len(types))]
		x.Data = make([]byte, bytesOf(x))
	case 5: // other dimensions
		slices.Reverse(x.Shape)
		if r.IntN(2) == 0 {
			x.Shape = append([]int{1}, x.Shape...)
		}
	case 6: // other values, of which those of g_idx and weight_shape matter
		if name = m.named(r, "g_idx", "weight_shape", "qzeros", "weight_scale"); name == "" || len(m.tensors[name].Data) < 4 {
			return
		}
		x = m.tensors[name]
		x.Data = append([]byte{}, x.Data...)
		binary.LittleEndian.PutUint32(x.Data[r.IntN(len(x.Data)/4)*4:], r.Uint32()>>r.IntN(32)-1)
	case 7: // another name
		delete(m.tensors, name)
		name += ".x"
	}
	x.Name = name
	m.tensors[name] = x
}

// bytesOf returns the bytes of a tensor, or 0 if they are many.
func bytesOf(x weights.Tensor) int {
	n := x.DType.Size()
	for _, d := range x.Shape {
		if d < 0 || d > 1<<20 || n*d > 1<<20 {
			return 0
		}
		n *= d
	}
	return n
}

// named returns the name of a tensor that ends in one of the parts, or "".
func (m hfModel) named(r *rand.Rand, parts ...string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		if slices.ContainsFunc(parts, func(part string) bool { return strings.HasSuffix(name, part) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[r.IntN(len(names))]
}

// spoilObject changes a value in an object of JSON, or in one inside it.
func spoilObject(r *rand.Rand, object map[string]any) {
	if len(object) == 0 {
		return
	}
	key := slices.Sorted(maps.Keys(object))[r.IntN(len(object))]
	if sub, ok := object[key].(map[string]any); ok && r.IntN(8) > 0 {
		spoilObject(r, sub)
		return
	}
	object[key] = hostileValues[r.IntN(len(hostileValues))]
}

// clone returns a copy of which a change leaves m as it is.
func (m hfModel) clone() (c hfModel) {
	raw, _ := json.Marshal(m.quantisation)
	_ = json.Unmarshal(raw, &c.quantisation)
	c.base, c.tensors = m.base, maps.Clone(m.tensors)
	for name, x := range c.tensors {
		x.Shape = slices.Clone(x.Shape)
		c.tensors[name] = x
	}
	return c
}

// What the tensors of a quantised checkpoint lack or hold too much of is refused by name.
func TestQuantisedTensorsAreChecked(t *testing.T) {
	const layer = "model.layers.0.mlp.down_proj"
	for name, test := range map[string]struct {
		format string
		change func(m *hfModel)
		want   error
		text   string
	}{
		"no scales":  {"gptq", func(m *hfModel) { delete(m.tensors, layer+".scales") }, weights.ErrMissing, ".scales"},
		"no zeros":   {"awq", func(m *hfModel) { delete(m.tensors, layer+".qzeros") }, weights.ErrMissing, ".qzeros"},
		"no scale":   {"float8 by row", func(m *hfModel) { delete(m.tensors, layer+".weight_scale") }, weights.ErrMissing, "_scale"},
		"no tiles":   {"float8 by tile", func(m *hfModel) { delete(m.tensors, layer+".weight_scale_inv") }, weights.ErrMissing, "_inv"},
		"no codes":   {"packed", func(m *hfModel) { delete(m.tensors, layer+".weight_packed") }, weights.ErrMissing, layer},
		"group size": {"packed", func(m *hfModel) { m.quantisation = group(32) }, model.ErrTensor, "group_size 32"},
		"wide codes": {"gptq", func(m *hfModel) {
			m.put(layer+".qweight", weights.I32, make([]byte, 4*64*128), 64, 128)
		}, model.ErrTensor, "qweight"},
		"tall codes": {"awq", func(m *hfModel) {
			m.put(layer+".qweight", weights.I32, make([]byte, 4*512*16), 512, 16)
		}, model.ErrTensor, "qweight"},
		"other columns": {"awq", func(m *hfModel) { m.quantisation["group_size"] = -1 }, model.ErrTensor, "group_size -1"},
		"a zero point": {"float8 by row", func(m *hfModel) {
			m.put(layer+".weight_zero_point", weights.I8, append(make([]byte, 127), 1), 128, 1)
		}, weights.ErrQuantised, "weight_zero_point"},
		"a bias": {"gptq", func(m *hfModel) { m.tensors[layer+".bias"].Data[5] = 1 }, model.ErrTensor,
			layer + ".bias"},
		"no config": {"gptq", func(m *hfModel) { m.quantisation = nil }, model.ErrTensor, "quantize_config.json"},
		"integers": {"float8 by row", func(m *hfModel) {
			m.quantisation = nil
			m.put("model.embed_tokens.weight", weights.I32, make([]byte, 4*96*128), 96, 128)
		}, model.ErrTensor, "no quantization_config"},
		"a norm of integers": {"packed", func(m *hfModel) { m.put("model.norm.weight", weights.I32, make([]byte, 512), 128) },
			model.ErrTensor, "must be float"},
	} {
		m, _ := newHFModel(t, rand.New(rand.NewPCG(1, 2)), hfFormats[test.format])
		test.change(&m)
		_, _, err := openHF(m.config(), m.file())
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, wants %v naming %s", name, err, test.want, test.text)
		}
	}
}

// A file that shrinks before its zero points are read is an error.
func TestQuantisedTensorsOfAShrunkenFile(t *testing.T) {
	const name = "model.layers.0.mlp.down_proj.weight_zero_point"
	m, _ := newHFModel(t, rand.New(rand.NewPCG(1, 2)), hfFormats["float8 by row"])
	m.put(name, weights.I8, make([]byte, 128), 128, 1)
	c, err := model.ParseConfig(m.config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, m.file(), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := weights.Open(os.DirFS(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Published(w); !errors.Is(err, weights.ErrChanged) {
		t.Error(err)
	}
}

// group returns a quantization_config of packed weights.
func group(size int) map[string]any {
	return map[string]any{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": map[string]any{
		"group_0": map[string]any{"weights": map[string]any{"num_bits": 4, "type": "int", "strategy": "group",
			"group_size": size}}}}
}

// Hostile checkpoints of each format end in a typed error before they are loaded or while they are, and checking
// takes little memory. 60 of each end in an error, with REEL_LONG 500; the others are served.
func TestHostileQuantisedCheckpoints(t *testing.T) {
	wanted := 60
	if os.Getenv("REEL_LONG") != "" {
		wanted = 500
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, f := range hfFormats {
		r := rand.New(rand.NewPCG(seed, uint64(len(name))))
		whole, plain := newHFModel(t, r, f)
		if name == "gptq" {
			whole.permuted(r, plain)
		}
		failures, served := 0, 0
		for failures < wanted {
			m := whole.clone()
			for range 1 + r.IntN(2) {
				m.spoil(r)
			}
			config, file := m.config(), m.file()
			spoilBytes(r, &file)
			if err := openHostile(t, config, file); err == nil {
				served++
			} else if failures++; !typed(err) {
				t.Fatalf("%s: %v is not typed; config %s", name, err, config)
			}
		}
		if served > 3*failures {
			t.Errorf("%s: %d of %d are served", name, served, served+failures)
		}
	}
}

// spoilBytes changes bytes of the file's header or cuts the file, sometimes.
func spoilBytes(r *rand.Rand, file *[]byte) {
	switch header := 8 + int(binary.LittleEndian.Uint64(*file)); r.IntN(10) {
	case 0:
		(*file)[r.IntN(header)] ^= byte(1 << r.IntN(8))
	case 1:
		*file = (*file)[:r.IntN(len(*file))]
	}
}

// allocated returns the bytes that were ever allocated on the heap.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// openHostile opens and loads a checkpoint. It bounds the memory that opening takes.
func openHostile(t *testing.T, config, file []byte) error {
	before := allocated()
	c, tensors, err := openHF(config, file)
	if taken := allocated() - before; taken > uint64(len(file))+(4<<20) {
		t.Errorf("opening takes %d bytes for a file of %d", taken, len(file))
	}
	if err != nil {
		return err
	}
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	m, err := model.Load(h, c, tensors, func(float64) {})
	if err != nil {
		if h.Live().Buffers != 0 {
			t.Errorf("%v, and %+v stays allocated", err, h.Live())
		}
		return err
	}
	return m.Free(h)
}
