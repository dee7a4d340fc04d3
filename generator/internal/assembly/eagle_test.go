package assembly

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/protocol"
)

const eagleData = "../model/testdata/eagle/"

// withHead returns options for the target of the trained EAGLE-3 heads, with the head in a directory.
func withHead(dir string) config.Options {
	return config.Options{Device: "host", Model: eagleData + "target", MaxSeqLen: 64, MaxBatch: 2, Draft: dir,
		DraftTokens: 3}
}

// headDir returns a copy of a trained EAGLE-3 head.
func headDir(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(eagleData+name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An EAGLE-3 head of either published form is loaded beside its model, named as the drafter, and counted in the plan as
// the start counts it.
func TestEagleHeadsAreLoaded(t *testing.T) {
	for _, name := range []string{"safeailab", "speculators", "parts"} {
		o := withHead(eagleData + name)
		l := prepared(t, o)
		if l.EngineOptions.Draft != engine.DraftModel || l.EngineOptions.DraftModel.Config.Eagle == nil {
			t.Errorf("%s: %+v", name, l.EngineOptions)
		}
		testPlannedBytes(t, o)
		m, err := loadModel(t, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Engine.Stats(); s.KV.PageBytes != l.pageBytes() || s.Drafts.Drafter != protocol.DrafterEagle {
			t.Errorf("%s: pages of %d bytes, wants %d; drafter %q", name, s.KV.PageBytes, l.pageBytes(),
				s.Drafts.Drafter)
		}
		c, use, err := Headers(os.DirFS(o.Model))
		if err == nil {
			err = DraftHeaders(o, c, &use)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := plan.ReportFor(c, use, o, "x", 1<<32)
		if last := r.Weights[len(r.Weights)-1]; err != nil || r.KV.PageBytes != l.pageBytes() ||
			r.Arena != l.sizes.Arena ||
			last.Parameters != use.Draft.Config.Parameters() || last.Kind != "EAGLE-3 head" {
			t.Errorf("%s: %+v, the start has %+v: %v", name, r, l.sizes, err)
		}
	}
	o := withHead("given:" + eagleData + "parts") // its passes take their time, and requests predict
	if m, err := loadModel(t, o); err != nil || m.Engine.Stats().Drafts.Drafter != protocol.DrafterGiven ||
		m.Engine.Stats().KV.PageBytes != prepared(t, withHead(eagleData+"parts")).pageBytes() {
		t.Errorf("given beside a head: %v", err)
	}
}

// changeTensor changes the header of a safetensors file, and its data.
func changeTensors(t *testing.T, dir string, change func(header map[string]any, data []byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]any
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	data := change(header, bytes.Clone(raw[8+n:]))
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, bytes.Repeat([]byte(" "), (8-len(text)%8)%8)...)
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, append(out, data...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tensorAt returns the offset of a tensor's data.
func tensorAt(header map[string]any, name string) int {
	return int(header[name].(map[string]any)["data_offsets"].([]any)[0].(float64))
}

// A head that is none for the model, or that is broken, ends the start with 78 and its cause.
func TestBadEagleHeads(t *testing.T) {
	inConfig := func(old, by string) func(dir string) {
		return func(dir string) { replaceIn(t, filepath.Join(dir, "config.json"), old, by) }
	}
	for cause, c := range map[string]struct {
		head   string
		change func(dir string)
	}{
		"with a vocabulary of 30, this one has 31: take": {"parts", inConfig(`"vocab_size": 31`, `"vocab_size": 30`)},
		"draft_vocab_size is 99, wants 1 to 31": {"safeailab",
			inConfig(`"draft_vocab_size": 23`, `"draft_vocab_size": 99`)},
		"num_hidden_layers is 2, wants 1 to 1": {"safeailab",
			inConfig(`"num_hidden_layers": 1`, `"num_hidden_layers": 2`)},
		"has the shape [80 64], the config asks for": {"safeailab",
			inConfig(`"intermediate_size": 80`, `"intermediate_size": 96`)},
		"with hidden states of 80, this one has 64": {"speculators",
			inConfig(`"target_hidden_size": 64`, `"target_hidden_size": 80`)},
		"input of layer 9, the model has 4 layers": {"speculators", inConfig("  3\n", "  9\n")},
		"unknown field \"gate_bias\"":              {"safeailab", inConfig(`"use_cache": true`, `"gate_bias": true`)},
		"unknown field \"depth\"":                  {"parts", inConfig(`"use_aux_hidden_state": true`, `"depth": 5`)},
		"use_aux_hidden_state false": {"parts",
			inConfig(`"use_aux_hidden_state": true`, `"use_aux_hidden_state": false`)},
		"unknown field \"layers_more\"": {"speculators", inConfig(`"auto_map"`, `"layers_more"`)},
		"speculators_model_type eagle":  {"speculators", inConfig(`"eagle3",`, `"eagle",`)},
		"this build serves llama and qwen3": {"speculators",
			inConfig(`"model_type": "llama"`, `"model_type": "mamba"`)},
		"attention_bias true": {"safeailab",
			inConfig(`"attention_bias": false`, `"attention_bias": true`)},
		"norm_before_fc beside fc_norm": {"speculators", inConfig(`"fc_norm": false`, `"fc_norm": true`)},
		"architectures [Eagle3DeepseekV2]": {"speculators",
			inConfig(`"Eagle3Speculator"`, `"Eagle3DeepseekV2"`)},
		"no safetensors": {"safeailab", func(dir string) {
			from, to := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "pytorch_model.bin")
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}},
		"the model's 31 tokens": {"safeailab", func(dir string) {
			changeTensors(t, dir, func(header map[string]any, data []byte) []byte {
				binary.LittleEndian.PutUint64(data[tensorAt(header, "d2t")+8*22:], 9)
				return data
			})
		}},
		"must hold differences of ids": {"safeailab", func(dir string) {
			changeTensors(t, dir, func(header map[string]any, data []byte) []byte {
				binary.LittleEndian.PutUint64(data[tensorAt(header, "d2t")+8*22:], ^uint64(5))
				return data
			})
		}},
		"no tensor \"q_norm.weight\"": {"safeailab", func(dir string) {
			changeTensors(t, dir, func(header map[string]any, data []byte) []byte {
				header["q_norm.weight"] = header["norm.weight"]
				delete(header, "norm.weight")
				return data
			})
		}},
		"are the same tensor of an EAGLE-3 head": {"safeailab", func(dir string) {
			changeTensors(t, dir, func(header map[string]any, data []byte) []byte {
				header["model.norm.weight"] = header["midlayer.hidden_norm.weight"]
				delete(header, "midlayer.hidden_norm.weight")
				return data
			})
		}},
	} {
		dir := headDir(t, c.head)
		c.change(dir)
		want := cause
		switch cause {
		case "no safetensors":
			want = "pytorch_model.bin, which is not read since it may run code: convert it once"
		case `no tensor "q_norm.weight"`:
			want = "no such tensor" // the missing one is named first
		}
		refused(t, withHead(dir), want)
	}
}

// Stored pages are found with the same head only, and not with another of its flags.
func TestPagesAreFoundByTheSameHeadOnly(t *testing.T) {
	changed := headDir(t, "speculators")
	replaceIn(t, filepath.Join(changed, "config.json"), `"norm_before_residual": true`, `"norm_before_residual": false`)
	seen := map[[32]byte]string{}
	for _, dir := range []string{"off", eagleData + "safeailab", eagleData + "speculators", changed} {
		sum, err := prepared(t, withHead(dir)).pageIdentity([32]byte{}, [32]byte{})
		if err != nil || seen[sum] != "" {
			t.Errorf("%s has the identity of %q: %v", dir, seen[sum], err)
		}
		seen[sum] = dir
	}
}
