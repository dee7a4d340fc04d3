//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"reel/generator/internal/engine"
	"reel/generator/internal/model"
	"reel/generator/internal/server"
	"reel/generator/internal/tokenizer"
	"reel/generator/internal/weights"
	"reel/generator/tiny"
	"reel/kernels"
	"reel/kernels/device"
	"reel/protocol"
)

// errConfig marks what the person who starts the generator has to change: exit 78.
var errConfig = errors.New("configuration")

// pageTokens is how many tokens a KV page holds.
const pageTokens = 16

// embeddedName is what the embedded model is called.
const embeddedName = "reel-tiny"

// load reads the model that o names onto its device and makes an engine for it.
// What the operator can mend is errConfig.
func load(_ context.Context, o Options, progress func(float64, string)) (server.Model, engineRunner, error) {
	l, err := prepare(o, progress)
	if err != nil {
		return server.Model{}, nil, err
	}
	opts := l.plan
	opts.Progress = func(share float64, what string) { progress(0.8+0.2*share, what) }
	e, err := engine.New(l.hardware.Device, l.model, opts)
	if err != nil {
		return server.Model{}, nil, err
	}
	return server.Model{Name: l.name, Device: l.hardware.Name(), Engine: e, Tokenizer: l.tokenizer, NewDecoder: l.decoder,
		Limits: protocol.Limits{Context: opts.Context, MaxBatch: opts.MaxBatch, Vocab: l.model.Config.Vocab},
		Shape:  shapeOf(l.model), Machine: l.hardware.machine}, e, nil
}

// hardware is a device and what it does at once.
type hardware struct {
	device.Device
	maxBatch    int // sequences
	chunk       int // prompt tokens of one step
	graphMemory int64
	kvType      kernels.DType
	machine     func() protocol.Machine
	// spare is how many bytes the KV pool may take, after the weights were loaded.
	spare func() (int64, error)
}

// prepared is a model on its device, and the sizes that its engine will have.
type prepared struct {
	name      string
	hardware  hardware
	tokenizer server.Tokenizer
	decoder   func(after []int32) server.Decoder
	model     *model.Model
	plan      engine.Options
}

func prepare(o Options, progress func(float64, string)) (l prepared, err error) {
	files, name, err := modelFiles(o.Model)
	if err != nil {
		return l, err
	}
	l.name = name
	if l.hardware, err = openHardware(o); err != nil {
		return l, err
	}
	if o.Guard {
		l.hardware.Device = device.NewGuard(l.hardware.Device)
	}
	if err = l.readModel(files, progress); err != nil {
		return l, refuse(errConfig, "the model in %s cannot be served: %w", name, err)
	}
	if l.plan, err = plan(l.model.Config, o, l.hardware); err != nil {
		return l, refuse(errConfig, "%w", err)
	}
	return l, nil
}

// modelFiles are the files of the directory, or of the embedded model where dir is empty.
func modelFiles(dir string) (fs.FS, string, error) {
	if dir == "" {
		return tiny.Files, embeddedName, nil
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", refuse(errConfig, "--model: %w", err)
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		return nil, "", refuse(errConfig, "--model %s: give a directory with config.json, tokenizer.json and safetensors: %w", dir, err)
	}
	return os.DirFS(path), filepath.Base(path), nil
}

// readModel reads tokenizer and weights, which must belong together.
func (l *prepared) readModel(files fs.FS, progress func(float64, string)) error {
	progress(0, "reading the tokenizer")
	vocab, err := l.readTokenizer(files)
	if err != nil {
		return err
	}
	progress(0.1, "loading the weights")
	l.model, err = loadWeights(l.hardware, files, func(share float64) { progress(0.1+0.7*share, "loading the weights") })
	if err != nil {
		return err
	}
	if vocab > l.model.Config.Vocab {
		return fmt.Errorf("tokenizer.json has %d tokens and config.json a vocabulary of %d: take both from one checkpoint", vocab, l.model.Config.Vocab)
	}
	return nil
}

// readTokenizer returns the tokenizer's number of ids. A model without
// tokenizer.json serves prompts of token ids.
func (l *prepared) readTokenizer(files fs.FS) (vocab int, err error) {
	if _, err := fs.Stat(files, "tokenizer.json"); errors.Is(err, fs.ErrNotExist) {
		l.tokenizer, l.decoder = idsOnly{}, func([]int32) server.Decoder { return idsOnly{} }
		return 0, nil
	}
	t, err := tokenizer.Load(files)
	if err != nil {
		return 0, err
	}
	l.tokenizer, l.decoder = t, func(after []int32) server.Decoder { return t.NewDecoder(after) }
	return t.Vocab(), nil
}

// loadWeights loads a checkpoint. Its files stay mapped for as long as the
// process lives: a device may read the weights in place.
func loadWeights(dev device.Memory, files fs.FS, progress func(float64)) (*model.Model, error) {
	raw, err := fs.ReadFile(files, "config.json")
	if err != nil {
		return nil, err
	}
	generation, err := fs.ReadFile(files, "generation_config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, err := model.ParseConfig(raw, generation)
	if err != nil {
		return nil, err
	}
	checkpoint, err := weights.Open(files)
	if err != nil {
		return nil, err
	}
	m, err := model.Load(dev, c, checkpoint, progress)
	if err != nil {
		return nil, errors.Join(err, checkpoint.Close())
	}
	return m, checkpoint.Unchanged()
}
