package assembly

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// A start waits for memory that other programs hold, and loads once they release it. A model
// that would not fit an empty device is refused at once.
func TestStartWaitsForMemory(t *testing.T) {
	defer func(w hardware.Retry) { hardware.Patience = w }(hardware.Patience)
	hardware.Patience = hardware.Retry{Limit: time.Hour, Pause: time.Microsecond}
	asked := 0
	open := func(whole int64) func(config.Options) (hardware.Hardware, error) {
		return func(config.Options) (hardware.Hardware, error) {
			h := hardware.Host()
			h.Available = func() (int64, error) {
				if asked++; asked < 4 {
					return 1 << 20, nil
				}
				return min(4, int64(asked)-3) << 30, nil // freed in four pieces
			}
			h.Whole = func() (int64, error) { return whole, nil }
			return h, nil
		}
	}
	l, err := prepareOn(open(4<<30), config.Options{MaxGraphs: 8}, func(float64, string) {})
	if err != nil || asked != 8 || l.Model == nil { // nothing was freed between the last two looks
		t.Errorf("%v after %d looks", err, asked)
	}
	asked = 0
	_, err = prepareOn(open(2<<20), config.Options{MaxGraphs: 8}, func(float64, string) {})
	if !errors.Is(err, config.ErrNoRoom) || !errors.Is(err, config.ErrConfig) || errors.Is(err, device.ErrBusy) ||
		asked != 1 {
		t.Errorf("%v after %d looks", err, asked)
	}
}

// A start does not wait for memory if the whole GPU is too small.
func TestGiantIsRefused(t *testing.T) {
	h := hardware.Host()
	h.Profile = plan.GPUProfile
	h.Available = func() (int64, error) { return 1 << 30, nil }
	h.Whole = func() (int64, error) { return 140 << 30, nil }
	_, err := prepareOn(func(config.Options) (hardware.Hardware, error) { return h, nil },
		config.Options{Model: giant(t)}, func(_ float64, what string) {
			if what != "reading the tokenizer" {
				t.Fatal(what)
			}
		})
	if !errors.Is(err, config.ErrNoRoom) || !errors.Is(err, config.ErrConfig) ||
		failure.Explain(err).Code != protocol.CodeOutOfMemory {
		t.Errorf("got %v", err)
	}
}

// giant returns a model of half a terabyte that consists of headers only.
func giant(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := []byte(`{"model_type":"llama","hidden_size":65536,"intermediate_size":262144,
		"num_hidden_layers":4,"num_attention_heads":512,
		"num_key_value_heads":512,"head_dim":128,"vocab_size":4096,"max_position_embeddings":2048,
		"rms_norm_eps":1e-5,"rope_theta":10000,"eos_token_id":1}`)
	c, err := model.ParseConfig(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	type tensor struct {
		Type    string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, end := map[string]tensor{}, int64(0)
	for _, s := range c.Tensors() {
		begin := end
		end += 2 * s.Elements()
		header[s.Name] = tensor{"BF16", s.Shape, [2]int64{begin, end}}
	}
	encoded, err := json.Marshal(header)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(encoded))), encoded...)
	weights := filepath.Join(dir, "model.safetensors")
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600),
		os.WriteFile(weights, file, 0o600),
		os.Truncate(weights, int64(len(file))+end)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A plan is made again while a program that leaves the device frees its memory, and at once if the start did not wait.
func TestPlanWaitsUntilMemoryIsFreed(t *testing.T) {
	busy := fmt.Errorf("full: %w", device.ErrBusy)
	for name, looks := range map[string][]struct {
		free int64
		err  error
		busy bool // what the look gives
	}{
		"no wait":         {{free: 9}},
		"freed in pieces": {{free: 1, err: busy, busy: true}, {free: 5, busy: true}, {free: 9, busy: true}, {free: 9}},
		"taken meanwhile": {{free: 1, err: busy, busy: true}, {free: 9, busy: true}, {free: 8}},
		"fits as it is":   {{free: 5, err: busy, busy: true}, {free: 5}},
	} {
		i := 0
		look := settled(func() (int64, error) { return looks[i].free, looks[i].err })
		for i = range looks {
			if err := look(); errors.Is(err, device.ErrBusy) != looks[i].busy {
				t.Errorf("%s, look %d: %v", name, i, err)
			}
		}
	}
}
