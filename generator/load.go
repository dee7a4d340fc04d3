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
	"reel/kernels/device"
	"reel/protocol"
)

// What the host device does at once. A chunk of 64 tokens takes about as long
// as the largest batch's decode step, so that neither holds up the other.
const (
	hostMaxBatch = 64
	hostChunk    = 64
	pageTokens   = 16
)

// embeddedName is what the embedded model is called.
const embeddedName = "reel-tiny"

// errConfig marks what the person who starts the generator has to change: exit 78.
var errConfig = errors.New("configuration")

// load reads the model that o names onto the host device and makes an engine for it.
func load(_ context.Context, o Options, progress func(float64, string)) (server.Model, engineRunner, error) {
	files, name, err := modelFiles(o.Model)
	if err != nil {
		return server.Model{}, nil, err
	}
	progress(0, "reading the tokenizer")
	tok, err := tokenizer.Load(files)
	if err != nil {
		return server.Model{}, nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	progress(0.1, "loading the weights")
	host := device.NewHost(device.HostOptions{})
	m, err := loadWeights(host, files, func(share float64) { progress(0.1+0.9*share, "loading the weights") })
	if err != nil {
		return server.Model{}, nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	if tok.Vocab() > m.Config.Vocab {
		return server.Model{}, nil, fmt.Errorf("%w: tokenizer.json has %d tokens, the model %d", errConfig, tok.Vocab(), m.Config.Vocab)
	}
	opts, err := plan(m.Config, o)
	if err != nil {
		return server.Model{}, nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	e, err := engine.New(host, m, opts)
	if err != nil {
		return server.Model{}, nil, err
	}
	return server.Model{Name: name, Device: host.Name(), Engine: e, Tokenizer: tok,
		NewDecoder: func() server.Decoder { return tok.NewDecoder() },
		Limits:     protocol.Limits{Context: opts.Context, MaxBatch: opts.MaxBatch, Vocab: m.Config.Vocab}}, e, nil
}

// modelFiles are the files of the directory, or of the embedded model where dir is empty.
func modelFiles(dir string) (fs.FS, string, error) {
	if dir == "" {
		return tiny.Files, embeddedName, nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: --model wants a directory with config.json, tokenizer.json and safetensors: %w", errConfig, err)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", fmt.Errorf("%w: --model: %w", errConfig, err)
	}
	return os.DirFS(path), filepath.Base(path), nil
}

// loadWeights loads a checkpoint. Its files stay mapped for as long as the
// process lives: the host device reads the weights in place.
func loadWeights(host *device.Host, files fs.FS, progress func(float64)) (*model.Model, error) {
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
	m, err := model.Load(host, c, checkpoint, progress)
	if err != nil {
		return nil, errors.Join(err, checkpoint.Close())
	}
	return m, checkpoint.Unchanged()
}
