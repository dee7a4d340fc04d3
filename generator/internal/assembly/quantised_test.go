package assembly

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

const float8Config = `{"model_type":"llama","vocab_size":96,"hidden_size":128,"intermediate_size":1024,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"max_position_embeddings":256,"rms_norm_eps":1e-5,
"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"group_0":{
"weights":{"num_bits":8,"type":"float","strategy":"tensor"}}}}}`

// float8Model writes a checkpoint of zeros in float8, and returns its directory and the number of its codes.
func float8Model(t *testing.T) (dir string, codes int64) {
	t.Helper()
	c, err := model.ParseConfig([]byte(float8Config), nil)
	if err != nil {
		t.Fatal(err)
	}
	header, at := map[string]any{}, int64(0)
	add := func(name string, d weights.DType, shape []int, n int64) {
		header[name] = map[string]any{"dtype": d.String(), "shape": shape, "data_offsets": []int64{at, at + n}}
		at += n
	}
	for _, s := range c.Tensors() {
		if !strings.Contains(s.Name, "_proj") {
			add(s.Name, weights.BF16, s.Shape, 2*s.Elements())
			continue
		}
		add(s.Name, weights.F8_E4M3, s.Shape, s.Elements())
		add(s.Name+"_scale", weights.F32, []int{1}, 4)
		codes += s.Elements()
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, strings.Repeat(" ", 8-(len(raw)+7)%8)...) // no tensor is aligned
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)
	dir = t.TempDir()
	for name, content := range map[string][]byte{"config.json": []byte(float8Config),
		"model.safetensors": append(data, make([]byte, at)...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, codes
}

// A quantised checkpoint is prepared on the host. The matrices that are converted count as copies, as do the embedding
// and the head, which are not aligned; the tensors that they are made of do not count as pages that stay.
func TestQuantisedCheckpointIsPrepared(t *testing.T) {
	dir, codes := float8Model(t)
	files, _, err := ModelFiles(config.Options{Model: dir})
	if err != nil {
		t.Fatal(err)
	}
	c, use, err := Headers(files)
	info, _ := os.Stat(filepath.Join(dir, "model.safetensors"))
	made, sources, unaligned := codes/128*132, codes+int64(4*7*c.Layers), int64(2*2*96*128)
	if err != nil || use.Formats["model.layers.1.mlp.up_proj.weight"] != kernels.F8 || use.Copied != made+unaligned ||
		use.Resident != info.Size()-sources-unaligned {
		t.Errorf("%+v, %v, wants %d bytes copied and %d resident", use, err, made+unaligned, info.Size()-sources-unaligned)
	}
	o := config.Options{Model: dir, Device: "host"}
	l, err := Prepare(o, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	if want := made + unaligned; l.Model.WeightBytes() != want {
		t.Errorf("%d bytes of weights, wants %d", l.Model.WeightBytes(), want)
	}
	if err := l.notFinite(t.Context(), o); err != nil {
		t.Error(err)
	}
}
