//go:build cuda

package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// valued is a model in a quantised format, and in bfloat16 the same values rounded. Of both transformers gets the exact
// values.
type valued struct {
	name         string
	c            model.Config // of tensors
	tensors      model.Tensors
	plain        model.Config // of the others
	exact        hfModel      // float32
	half         hfModel      // bfloat16
	context, ids int          // no sequence is longer, no token larger
}

// valuedModels returns a small model in every quantised format of GGUF and of Hugging Face.
func valuedModels(t *testing.T) (all []valued) {
	t.Helper()
	c := wide()["llama"]
	c.Layers, c.Context, c.Vocab = 4, 256, 512
	for _, format := range slices.Sorted(maps.Keys(picks())) {
		pick := picks()[format]
		got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, newRandom(c, pick, 0), same(t)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, valued{"gguf " + format, got, tensors, c, tensorsOf(t, c, newRandom(c, pick, weights.F32)),
			tensorsOf(t, c, newRandom(c, pick, weights.BF16)), c.Context, c.Vocab})
	}
	for _, format := range slices.Sorted(maps.Keys(hfFormats)) {
		m, plain := newHFModel(t, rand.New(rand.NewPCG(24, 24)), hfFormats[format])
		got, tensors, err := openHF(m.config(), m.file())
		if err != nil {
			t.Fatal(err)
		}
		pc, _, err := openHF(plain.config(), plain.file())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, valued{format, got, tensors, pc, plain, plain.rounded(), got.Context, got.Vocab})
	}
	return all
}

// Tensor returns a tensor.
func (m hfModel) Tensor(name string) (weights.Tensor, error) {
	if x, ok := m.tensors[name]; ok {
		return x, nil
	}
	return weights.Tensor{}, weights.ErrMissing
}

// Names returns the names of all tensors.
func (m hfModel) Names() []string { return slices.Sorted(maps.Keys(m.tensors)) }

// tensorsOf returns all tensors of a model.
func tensorsOf(t *testing.T, c model.Config, from model.Tensors) hfModel {
	t.Helper()
	m := hfModel{tensors: map[string]weights.Tensor{}}
	for _, s := range c.Tensors() {
		x, err := from.Tensor(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		m.tensors[s.Name] = x
	}
	return m
}

// rounded returns the tensors with matrices in bfloat16.
func (m hfModel) rounded() hfModel {
	out := hfModel{tensors: maps.Clone(m.tensors)}
	for name, x := range m.tensors {
		if len(x.Shape) == 1 {
			continue
		}
		var data []byte
		for i := range x.Shape[0] * x.Shape[1] {
			bits := math.Float32bits(x.Float(i))
			data = binary.LittleEndian.AppendUint16(data, uint16((bits+0x7fff+bits>>16&1)>>16))
		}
		out.put(name, weights.BF16, data, x.Shape...)
	}
	return out
}

// write writes a checkpoint that transformers reads.
func (m hfModel) write(c model.Config, dir string) error {
	config, err := json.Marshal(map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama",
		"vocab_size": c.Vocab, "hidden_size": c.Hidden, "intermediate_size": c.Inner, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"max_position_embeddings": c.Context, "rms_norm_eps": c.RMSNormEps, "rope_theta": c.RoPETheta, "hidden_act": "silu",
		"tie_word_embeddings": c.TiedHead})
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600),
		os.WriteFile(filepath.Join(dir, "model.safetensors"), m.file(), 0o600))
}

// sequences returns prompts of random tokens, of which the last generated ones are given one by one.
func sequences(context, ids int) (all [][]int32) {
	r := rand.New(rand.NewPCG(24, 1))
	for i := range 48 {
		tokens := make([]int32, generated+1+(context-generated-1)*i/48)
		for j := range tokens {
			tokens[j] = r.Int32N(int32(ids))
		}
		all = append(all, tokens)
	}
	return all
}

const generated = 8

// referenced writes the models and has transformers compute the logits of all tokens of the sequences: a folder for
// each model, values for what is exact, half for bfloat16.
func referenced(t *testing.T, python string, models []valued) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, m := range models {
		for kind, x := range map[string]hfModel{"values": m.exact, "half": m.half} {
			to := filepath.Join(dir, fmt.Sprint(i), kind)
			tokens, err := json.Marshal(sequences(m.context, m.ids))
			err = errors.Join(err, x.write(m.plain, to), os.WriteFile(filepath.Join(to, "tokens.json"), tokens, 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := exec.Command(python, "../../../bench/tools/values.py", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// readLogits returns the rows that transformers left in dir.
func readLogits(t *testing.T, dir string, vocab int) (rows [][]float32) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "logits.f32"))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(raw); at += 4 * vocab {
		row := make([]float32, vocab)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[at+4*i:]))
		}
		rows = append(rows, row)
	}
	return rows
}

// distance is that of log-probabilities from a reference.
type distance struct {
	squares, n float64
	most       float64
}

func (d *distance) add(got, want []float32) {
	a, b := logSum(got), logSum(want)
	for i := range want {
		e := math.Abs((float64(got[i]) - a) - (float64(want[i]) - b))
		d.squares, d.n, d.most = d.squares+e*e, d.n+1, max(d.most, e)
	}
}

func (d *distance) rms() float64 { return math.Sqrt(d.squares / d.n) }

// logSum returns the logarithm of the sum of the exponentials.
func logSum(x []float32) float64 {
	top, sum := float64(slices.Max(x)), 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

// measure returns the distances from the logits of transformers after prompts, and after tokens that follow them.
func measure(t *testing.T, dev device.Device, kv kernels.DType, c model.Config, tensors model.Tensors, ids int,
	want [][]float32) (prompt, decode distance) {
	t.Helper()
	m, err := model.Load(dev, c, tensors, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, dev, m, c.Context, kv)
	for i, tokens := range sequences(c.Context, ids) {
		r.begin(i + 2)
		first := len(tokens) - generated
		r.prompt(tokens[:first], c.Context)
		prompt.add(r.logits(), want[first-1])
		for i, token := range tokens[first:] {
			row := kernels.Row{Position: int32(first + i), Token: token}
			r.step(kernels.Step{Rows: []kernels.Row{row}, Samples: []int32{0}}, model.Shape{Rows: 1, Samples: 1})
			decode.add(r.logits(), want[first+i])
		}
		want = want[len(tokens):]
	}
	r.free()
	if err := m.Free(dev); err != nil {
		t.Fatal(err)
	}
	return prompt, decode
}

// equalTransformers compares models in each quantised format with transformers in float32 on their exact values: the
// error of log-probabilities, after prompts and after tokens, is not far above that of bfloat16 weights. The ratio of two
// models of these sizes scatters by half around 1, on the host too where both errors are rounding of float32: so the
// test fails at twice, and prints the ratios.
func equalTransformers(t *testing.T, dev device.Device, kv kernels.DType) {
	python := os.Getenv("REEL_TRANSFORMERS")
	if python == "" {
		t.Skip("this test wants REEL_TRANSFORMERS: a python3 with torch and transformers")
	}
	models := valuedModels(t)
	dir := referenced(t, python, models)
	t.Logf("%-24s %9s %9s %6s %7s | %9s %9s %6s %7s", "log-probabilities", "prompt", "bf16", "ratio", "most", "decode", "bf16",
		"ratio", "most")
	for i, m := range models {
		folder := func(kind string) string { return filepath.Join(dir, fmt.Sprint(i), kind) }
		p, d := measure(t, dev, kv, m.c, m.tensors, m.ids, readLogits(t, folder("values"), m.ids))
		hp, hd := measure(t, dev, kv, m.plain, m.half, m.ids, readLogits(t, folder("half"), m.ids))
		t.Logf("%-24s %9.2e %9.2e %6.3f %7.4f | %9.2e %9.2e %6.3f %7.4f", m.name, p.rms(), hp.rms(), p.rms()/hp.rms(), p.most,
			d.rms(), hd.rms(), d.rms()/hd.rms(), d.most)
		if !(p.rms() <= 2*hp.rms()) || !(d.rms() <= 2*hd.rms()) {
			t.Errorf("%s: the error is more than twice that of bfloat16", m.name)
		}
	}
}
