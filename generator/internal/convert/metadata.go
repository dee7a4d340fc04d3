package convert

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"

	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// pairs returns the metadata of the file.
func (job Job) pairs() []ggufmake.Pair {
	c := job.Config
	c.EOS = nil // the tokenizer's pairs have them
	pairs := append(ggufmake.Pairs(c), ggufmake.Pair{Key: "general.type", Value: "model"},
		ggufmake.Pair{Key: "general.name", Value: job.Name},
		ggufmake.Pair{Key: "general.file_type", Value: fileTypes[job.Target]},
		ggufmake.Pair{Key: "general.quantization_version", Value: uint32(2)})
	return append(pairs, job.Pairs...)
}

// sameModel returns model.ErrUnsupported if a config that was read from GGUF is not the one that was written, because
// GGUF cannot say a part of it.
func sameModel(want, got model.Config) error {
	switch want.Name {
	case "mistral":
		want.Name = "llama"
	case "glm4_moe_lite": // DeepSeek-V3 with other numbers
		want.Name = "deepseek_v3"
	case "gemma4_unified_text": // of the same architecture
		want.Name = "gemma4_text"
	}
	want.Further = 0             // layers that are left out
	want.NormsFromOne = false    // their weights are written whole
	if got.RoPEDivisors != nil { // of no published scaling: they stand for it
		want.RoPE = model.RoPEScaling{}
	}
	want.RoPETheta, want.RoPEDivisors = float64(float32(want.RoPETheta)), got.RoPEDivisors
	want.EOS, want.Suppressed, want.Wrapped, want.ContextReason = got.EOS, nil, false, got.ContextReason
	if want.Latent == nil { // rows are put in GGUF's order
		want.Interleaved = got.Interleaved
	}
	if e := want.Embedding; e != nil && e.Default == "" { // prompts are for those who ask
		want.Embedding = &model.Embedding{Unit: e.Unit, Least: e.Least}
	}
	if a, b := want.RoPE.Attention, got.RoPE.Attention; math.Abs(float64(a-b)) <= 1e-6*float64(a) {
		want.RoPE.Attention = b // GGUF holds it divided by yarn's own factor, so the last bits may differ
	}
	a, b := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range a.NumField() {
		if !a.Type().Field(i).IsExported() { // names of tensors
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return fmt.Errorf("%w: GGUF cannot hold the config's %s, %v: it would be read as %v", model.ErrUnsupported,
				a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
	return nil
}

// oneFile is the file system of one GGUF file.
type oneFile string

// GGUF returns the file's name.
func (f oneFile) GGUF() string { return filepath.Base(string(f)) }

// Open opens the file.
func (f oneFile) Open(name string) (fs.File, error) {
	if name != f.GGUF() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return files.Dir(filepath.Dir(string(f))).Open(name)
}
