package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels/device"
)

// tinyJob returns the conversion of the embedded model to a file in a directory of its own.
func tinyJob(t *testing.T, to Target) Job {
	t.Helper()
	return jobOf(t, "../../tiny", to, filepath.Join(t.TempDir(), "out.gguf"))
}

func jobOf(t *testing.T, dir string, to Target, out string) Job {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return Job{Name: "test", Config: c, Tensors: file, Target: to, Out: out}
}

// left returns the names of files beside the output.
func left(t *testing.T, job Job) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(job.Out))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Every tensor of the file is that of the checkpoint in its format, with rows in the file's order, and the report says
// what was lost.
func TestRun(t *testing.T) {
	for _, to := range []Target{Q8_0, Q4_0, Q4_K_M} {
		t.Run(string(to), func(t *testing.T) {
			job := tinyJob(t, to)
			job.Pairs = []ggufmake.Pair{{Key: "tokenizer.chat_template", Value: "x"}}
			report, err := Run(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if names := left(t, job); !slices.Equal(names, []string{"out.gguf"}) {
				t.Errorf("%q", names)
			}
			file, err := weights.Open(oneFile(job.Out))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			m := file.Metadata()
			if kind, _ := m.Uint("general.file_type"); kind != uint64(fileTypes[to]) {
				t.Errorf("file_type %d", kind)
			}
			if text, _ := m.String("tokenizer.chat_template"); text != "x" {
				t.Errorf("%q", text)
			}
			if info, _ := os.Stat(job.Out); info.Size() != report.Written {
				t.Errorf("%d bytes, the report says %d", info.Size(), report.Written)
			}
			checkTensors(t, job, file, report)
		})
	}
}

// oddWidths is a checkpoint of bfloat16 whose matrices have 40, 48, 64 and 72 columns.
type oddWidths struct{ model.Config }

func (w oddWidths) Names() (names []string) {
	for _, s := range w.Tensors() {
		names = append(names, s.Name)
	}
	return names
}

func (w oddWidths) Tensor(name string) (weights.Tensor, error) {
	for _, s := range w.Tensors() {
		if s.Name == name {
			t := weights.Tensor{Name: name, File: "f", DType: weights.BF16, Shape: s.Shape, Data: make([]byte, 2*s.Elements())}
			for i := range s.Elements() {
				binary.LittleEndian.PutUint16(t.Data[2*i:], uint16(0x3c00+i*7919%0x300)) // 2^-7 to 2^-1
			}
			return t, nil
		}
	}
	return weights.Tensor{}, weights.ErrMissing
}

// A matrix whose columns are no whole blocks is float16 beside the others, and the file is one that is served.
func TestOddWidths(t *testing.T) {
	for to, wide := range map[Target]weights.DType{Q8_0: weights.Q8_0, Q4_0: weights.Q4_0, Q4_K_M: weights.Q5_0} {
		c := model.Config{Name: "llama", Vocab: 64, Hidden: 40, Inner: 72, Layers: 4, Heads: 2, KVHeads: 2, HeadDim: 32,
			Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000}
		job := Job{Name: "odd", Config: c, Tensors: oddWidths{c}, Target: to, Out: filepath.Join(t.TempDir(), "out.gguf")}
		report, err := Run(t.Context(), job)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		file, err := weights.Open(oneFile(job.Out))
		if err != nil {
			t.Fatal(err)
		}
		checkTensors(t, job, file, report)
		for name, want := range map[string]weights.DType{"blk.1.attn_output.weight": wide, "blk.1.attn_v.weight": weights.F16,
			"blk.1.ffn_down.weight": weights.F16, "output.weight": weights.F16, "output_norm.weight": weights.F32} {
			if got, err := file.Tensor(name); err != nil || got.DType != want {
				t.Errorf("%s: %s is %v, wants %v, %v", to, name, got.DType, want, err)
			}
		}
		dev := device.NewHost(device.HostOptions{})
		read, named, err := model.ParseGGUF(file.Metadata(), file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Load(dev, read, named, func(float64) {})
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		if err := errors.Join(m.Free(dev), file.Close()); err != nil {
			t.Error(err)
		}
		dev.Close()
	}
}

// What float16 cannot hold is refused, with the tensor and what to take instead.
func TestOddWidthsOutOfRange(t *testing.T) {
	job := tinyJob(t, Q8_0)
	p, err := job.plan()
	if err != nil {
		t.Fatal(err)
	}
	data := binary.LittleEndian.AppendUint32(nil, math.Float32bits(65536))
	p.tensors = []planned{{Tensor: weights.Tensor{Name: "odd", File: "f", DType: weights.F32, Shape: []int{1, 1}, Data: data},
		to: weights.F16}}
	w := worker{plan: p}
	if _, err = w.convert(part{0, 0, 1}); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "odd: its 1 columns") {
		t.Error(err)
	}
}

// checkTensors compares a file with its source.
func checkTensors(t *testing.T, job Job, file *weights.Checkpoint, report Report) {
	t.Helper()
	square, lost := map[model.TensorKind]float64{}, map[model.TensorKind]float64{}
	for _, s := range job.Config.Tensors() {
		own, err1 := job.Tensors.Tensor(s.Name)
		got, err2 := file.Tensor(ggufmake.Name(job.Config, s.Llama))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		n := columns(s.Shape)
		for r := range s.Shape[0] {
			x, y := make([]float32, n), make([]float32, n)
			from := ggufmake.Row(job.Config, s.Name, r) * n
			for i := range x {
				x[i] = own.Float(from + i)
			}
			want := make([]byte, got.DType.Bytes(n))
			row := got.Data[r*len(want):][:len(want)]
			if r%13 == 0 {
				if encode(want, got.DType, x); !bytes.Equal(row, want) {
					t.Fatalf("%s: row %d is %x, wants %x", s.Name, r, row, want)
				}
			}
			formats[got.DType].values.Decode(y, row)
			for i := range x {
				square[s.Kind] += float64(x[i]) * float64(x[i])
				lost[s.Kind] += (float64(x[i]) - float64(y[i])) * (float64(x[i]) - float64(y[i]))
			}
		}
	}
	for _, c := range report.Classes {
		if want := math.Sqrt(lost[c.Kind] / square[c.Kind]); !(math.Abs(c.Error-want) <= 1e-9) {
			t.Errorf("%s: error %v, wants %v", c.Kind, c.Error, want)
		}
	}
	if len(report.Classes) != len(square) {
		t.Errorf("%+v", report.Classes)
	}
}

// The mixture is llama-quantize's.
func TestMixture(t *testing.T) {
	llama := model.Config{Name: "llama", Vocab: 512, Hidden: 256, Inner: 512, Layers: 8, Heads: 8, KVHeads: 2, HeadDim: 32}
	with := func(change func(*model.Config)) model.Config {
		c := llama
		change(&c)
		return c
	}
	large := with(func(c *model.Config) { c.Layers = 80 })
	narrow := with(func(c *model.Config) { c.Hidden, c.Heads, c.TiedHead = 96, 3, true })
	for _, w := range []struct {
		name   string
		config model.Config
		tensor string
		want   weights.DType
	}{
		{"embedding", llama, "model.embed_tokens.weight", weights.Q4_K},
		{"tied embedding", with(func(c *model.Config) { c.TiedHead = true }), "model.embed_tokens.weight", weights.Q6_K},
		{"head", llama, "lm_head.weight", weights.Q6_K},
		{"first values", llama, "model.layers.0.self_attn.v_proj.weight", weights.Q6_K},
		{"values", llama, "model.layers.2.self_attn.v_proj.weight", weights.Q4_K},
		{"third values", llama, "model.layers.3.self_attn.v_proj.weight", weights.Q6_K},
		{"last values", llama, "model.layers.7.self_attn.v_proj.weight", weights.Q6_K},
		{"down", llama, "model.layers.6.mlp.down_proj.weight", weights.Q6_K},
		{"down between", llama, "model.layers.5.mlp.down_proj.weight", weights.Q4_K},
		{"keys", llama, "model.layers.0.self_attn.k_proj.weight", weights.Q4_K},
		{"up", llama, "model.layers.0.mlp.up_proj.weight", weights.Q4_K},
		{"fused", with(func(c *model.Config) { c.Name, c.FusedQKV, c.FusedGateUp = "phi3", true, true }),
			"model.layers.0.self_attn.qkv_proj.weight", weights.Q6_K},
		{"70B", large, "model.layers.20.self_attn.v_proj.weight", weights.Q5_K},
		{"70B, more bits", large, "model.layers.12.self_attn.v_proj.weight", weights.Q6_K},
		{"70B, down", large, "model.layers.20.mlp.down_proj.weight", weights.Q4_K},
		{"65B", with(func(c *model.Config) { c.Layers, c.KVHeads = 80, 8 }),
			"model.layers.20.self_attn.v_proj.weight", weights.Q4_K},
		{"Qwen2 72B", with(func(c *model.Config) { c.Layers, c.KVHeads, c.Name = 80, 8, "qwen2" }),
			"model.layers.20.self_attn.v_proj.weight", weights.Q5_K},
		{"Qwen3 of 80 layers", with(func(c *model.Config) { c.Layers, c.Name = 80, "qwen3" }),
			"model.layers.20.self_attn.v_proj.weight", weights.Q4_K},
		{"narrow", narrow, "model.layers.1.self_attn.v_proj.weight", weights.Q5_0},
		{"narrow, more bits", narrow, "model.embed_tokens.weight", weights.Q8_0},
		{"narrow 70B", with(func(c *model.Config) { c.Hidden, c.Layers, c.Heads = 96, 80, 3 }),
			"model.layers.20.self_attn.v_proj.weight", weights.Q5_1},
	} {
		i := slices.IndexFunc(w.config.Tensors(), func(s model.TensorSpec) bool { return s.Name == w.tensor })
		if i < 0 {
			t.Fatalf("%s: no tensor %s", w.name, w.tensor)
		}
		if got := Q4_K_M.format(w.config, w.config.Tensors()[i]); got != w.want {
			t.Errorf("%s: %v, wants %v", w.name, got, w.want)
		}
	}
}

// changedTensors replaces a tensor.
type changedTensors struct {
	model.Tensors
	name   string
	change func(*weights.Tensor)
}

func (c changedTensors) Tensor(name string) (weights.Tensor, error) {
	t, err := c.Tensors.Tensor(name)
	if name == c.name {
		t.Data = bytes.Clone(t.Data)
		c.change(&t)
	}
	return t, err
}

// What cannot be converted is an error with a type, and leaves no file.
func TestRunRefuses(t *testing.T) {
	const matrix = "model.layers.1.mlp.up_proj.weight"
	change := func(f func(*weights.Tensor)) func(*Job) {
		return func(j *Job) { j.Tensors = changedTensors{j.Tensors, matrix, f} }
	}
	bf16 := func(bits uint16) func(*Job) {
		return change(func(x *weights.Tensor) { binary.LittleEndian.PutUint16(x.Data[2*300:], bits) })
	}
	for name, c := range map[string]struct {
		change func(*Job)
		want   error
		text   string
	}{
		"target":   {func(j *Job) { j.Target = "q9" }, ErrTarget, "q4_0, q4_k_m, q8_0"},
		"infinity": {bf16(0x7f80), weights.ErrNotFinite, matrix},
		"NaN":      {bf16(0x7fc0), weights.ErrNotFinite, matrix},
		"range":    {bf16(0x7e00), ErrRange, "65504"},
		"quantised": {change(func(x *weights.Tensor) { x.DType = weights.Q8_0 }), ErrSource,
			"wants BF16, F16 or F32"},
		"missing":     {func(j *Job) { j.Config.Layers++ }, weights.ErrMissing, "layers.4"},
		"windows":     {func(j *Job) { j.Config.Windows = []int{8, 0, 8, 0} }, model.ErrUnsupported, "Windows"},
		"divisors":    {func(j *Job) { j.Config.RoPE.Kind, j.Config.RoPE.Factor = model.Llama3RoPE, 1e30 }, model.ErrTensor, "rope_freqs"},
		"no such dir": {func(j *Job) { j.Out = filepath.Join(j.Out, "x.gguf") }, os.ErrNotExist, ""},
	} {
		job := tinyJob(t, Q8_0)
		at := job.Out
		c.change(&job)
		_, err := Run(t.Context(), job)
		if job.Out = at; !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if names := left(t, job); len(names) > 0 {
			t.Errorf("%s leaves %q", name, names)
		}
	}
}

// An existing file is replaced with Force only, whole, and one that is being written never.
func TestExisting(t *testing.T) {
	job := tinyJob(t, Q8_0)
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(job.Out)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the file is refused before the work begins
	if _, err := Run(ended, job); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "--force") {
		t.Error(err)
	}
	if text, _ := os.ReadFile(job.Out); string(text) != "old" {
		t.Errorf("%q", text)
	}
	job.Force = true
	write(job.Out + ".new")
	if _, err := Run(t.Context(), job); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "remove it") {
		t.Error(err)
	}
	if text, _ := os.ReadFile(job.Out + ".new"); string(text) != "old" {
		t.Errorf("%q", text)
	}
	if err := os.Remove(job.Out + ".new"); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), job); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(job.Out); info.Size() < 1<<20 || len(left(t, job)) != 1 {
		t.Errorf("%d bytes, %q", info.Size(), left(t, job))
	}
	job.Out = filepath.Dir(job.Out)
	if _, err := Run(t.Context(), job); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
}

// A file that appears while another is written is not replaced.
func TestAppears(t *testing.T) {
	final := filepath.Join(t.TempDir(), "out.gguf")
	o, err := create(final, false, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(final, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.finish(); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	o.remove()
	if text, _ := os.ReadFile(final); string(text) != "other" {
		t.Errorf("%q", text)
	}
	if _, err := os.Stat(o.path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A conversion that is stopped leaves nothing, and says why.
func TestStopped(t *testing.T) {
	job := tinyJob(t, Q8_0)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := Run(ctx, job); !errors.Is(err, stopped) {
		t.Error(err)
	}
	if names := left(t, job); len(names) > 0 {
		t.Errorf("%q", names)
	}
}

// A source that shrinks is an error, not the end of the process.
func TestSourceShrinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "model"), tiny.Files); err != nil {
		t.Fatal(err)
	}
	job := jobOf(t, filepath.Join(dir, "model"), Q8_0, filepath.Join(dir, "out.gguf"))
	if err := os.Truncate(filepath.Join(dir, "model", "model.safetensors"), 1<<16); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), job); !errors.Is(err, weights.ErrChanged) {
		t.Error(err)
	}
	if names := left(t, job); len(names) > 0 {
		t.Errorf("%q", names)
	}
}

// A source that is written over with the same size is an error, and an older output stays.
func TestSourceChanges(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "model"), tiny.Files); err != nil {
		t.Fatal(err)
	}
	job := jobOf(t, filepath.Join(dir, "model"), Q8_0, filepath.Join(dir, "out.gguf"))
	job.Force, job.Unchanged = true, job.Tensors.(*weights.Checkpoint).Unchanged
	if err := os.WriteFile(job.Out, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "model", "model.safetensors"), later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), job); !errors.Is(err, weights.ErrChanged) {
		t.Error(err)
	}
	if text, _ := os.ReadFile(job.Out); string(text) != "old" || len(left(t, job)) != 1 {
		t.Errorf("the output has %d bytes; the directory has %q", len(text), left(t, job))
	}
}

// A full disk shows before the work, with the next step.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("wants the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	job := tinyJob(t, Q8_0)
	job.Out = filepath.Join(dir, "out.gguf")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ended, job)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space in "+dir) {
		t.Error(err)
	}
	if names := left(t, job); len(names) > 0 {
		t.Errorf("%q", names)
	}
}

// The table names each class once.
func TestPrint(t *testing.T) {
	r := Report{Source: 1 << 20, Written: 1 << 19, Elements: 1 << 19, Classes: []Class{
		{Kind: model.EmbeddingTensor, Formats: "Q8_0", Source: 1 << 20, Written: 1 << 19, Error: 0.00537}}}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "tensors    formats             source     written    error\n" +
		"embedding  Q8_0                1.000 MiB  512.0 KiB  0.537 %\n" +
		"all        8.00 bits a weight  1.000 MiB  512.0 KiB  \n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// A config that GGUF has under another name, or without its further layers, is the same model. One that would be read as
// something else is refused.
func TestSameModel(t *testing.T) {
	read := model.Config{Name: "deepseek_v3", Latent: &model.Latent{Rank: 2}, Interleaved: true}
	read.RoPE.Attention = 1
	for _, x := range []struct {
		change func(c *model.Config)
		names  string // the field that the refusal names; "": there is none
	}{
		{func(*model.Config) {}, ""},
		{func(c *model.Config) { c.Name = "glm4_moe_lite" }, ""},
		{func(c *model.Config) { c.Further = 1 }, ""},
		{func(c *model.Config) { c.Interleaved = false }, "Interleaved"},
		{func(c *model.Config) { c.RoPE.Attention *= 1 + 0x1p-23 }, ""}, // the last bit
		{func(c *model.Config) { c.RoPE.Attention *= 1 + 1e-5 }, "RoPE"},
		{func(c *model.Config) { c.Latent = &model.Latent{Rank: 3} }, "Latent"},
	} {
		want := read
		x.change(&want)
		err := sameModel(want, read)
		if (err == nil) != (x.names == "") || err != nil && !strings.Contains(err.Error(), x.names) {
			t.Errorf("%+v: %v, wants a refusal that names %q", want, err, x.names)
		}
	}
	if err := sameModel(model.Config{Name: "gemma4_unified_text"}, model.Config{Name: "gemma4_text"}); err != nil {
		t.Error(err)
	}
}

// llama.cpp reads attn_kv_b where the keys of split matrices are absent, and experts from the first layer on that is not
// dense. Gemma's windows have defaults of their own. llama.cpp multiplies yarn's own attention factor by attn_factor; for
// Mistral 3 it reads the multiplier of the logarithm instead.
func TestPairsForLlamaCpp(t *testing.T) {
	value := func(c model.Config, key string) any {
		for _, p := range ggufmake.Pairs(c) {
			if p.Key == ggufmake.Architecture(c)+"."+key {
				return p.Value
			}
		}
		return nil
	}
	latent := model.Config{Name: "deepseek_v2", Heads: 2, KVHeads: 2, HeadDim: 24, Layers: 3,
		Latent:  &model.Latent{Rank: 32, Nope: 16, Rope: 8, Value: 12},
		Experts: &model.Experts{Count: 4, Used: 2, Inner: 8, Shared: 8, Dense: []bool{true, true, false}}}
	yarn := func(name string, attention float32) model.Config {
		return model.Config{Name: name, RoPE: model.RoPEScaling{Kind: model.YarnRoPE, Factor: 4, Attention: attention}}
	}
	for _, x := range []struct {
		config model.Config
		key    string
		want   any
	}{
		{latent, "attention.key_length", uint32(24)}, {latent, "attention.value_length", uint32(12)},
		{latent, "attention.head_count_kv", uint32(2)}, {latent, "attention.key_length_mla", nil},
		{latent, "attention.value_length_mla", nil}, {latent, "leading_dense_block_count", uint32(2)},
		{model.Config{Name: "gemma2", Context: 64}, "attention.sliding_window", uint32(64)},
		{model.Config{Name: "gemma2", Context: 64, Windows: []int{8, 0}}, "attention.sliding_window", uint32(8)},
		{model.Config{Name: "gemma3_text", Context: 64, Local: []bool{true}}, "attention.sliding_window", uint32(64)},
		{model.Config{Name: "gemma3_text", Context: 64, Local: []bool{false}}, "attention.sliding_window", nil},
		{yarn("llama", 1), "rope.scaling.attn_factor", float32(1 / (1 + 0.1*math.Log(4)))},
		{yarn("llama", 1), "rope.scaling.yarn_log_multiplier", nil},
		{yarn("llama", float32(1+0.1*math.Log(4))), "rope.scaling.attn_factor", nil},
		{yarn("ministral3", 1), "rope.scaling.yarn_log_multiplier", float32(1)},
		{yarn("ministral3", 1), "rope.scaling.attn_factor", nil},
	} {
		if got := value(x.config, x.key); got != x.want {
			t.Errorf("%s of %s: %v, wants %v", x.key, x.config.Name, got, x.want)
		}
	}
	if got := ggufmake.Architecture(model.Config{Name: "granitemoehybrid"}); got != "granite" {
		t.Errorf("Granite 4 is %s", got)
	}
}
