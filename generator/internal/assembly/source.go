package assembly

import (
	"errors"
	"io/fs"

	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// source is an open checkpoint with headers that match its config. No tensor has been read.
type source struct {
	config  model.Config
	tensors *weights.Checkpoint
	named   model.Tensors // tensors under their published names
	ignored int           // tensors of other models in a wrapped checkpoint, or in a file of Ollama's
	// metadata is that of a GGUF file, in llama.cpp's form.
	metadata weights.Metadata
}

// openSource reads the config and the headers of the weights.
func openSource(files fs.FS) (s source, err error) {
	_, gguf := files.(weights.GGUF)
	if !gguf {
		if s.config, err = readConfig(files); err != nil {
			return s, err
		}
	}
	if s.tensors, err = weights.Open(files); err != nil {
		return s, err
	}
	if gguf {
		s.metadata, s.named, s.ignored = model.FromOllama(s.tensors.Metadata(), s.tensors)
		s.config, s.named, err = model.ParseGGUF(s.metadata, s.named)
	} else {
		s.config, s.named, s.ignored = s.config.Text(s.tensors)
		s.named, err = s.config.Published(s.config.Bare(s.named))
	}
	if err == nil {
		err = s.config.CheckTensors(s.named)
	}
	if err != nil {
		return s, errors.Join(err, s.tensors.Close())
	}
	return s, nil
}

// use returns the host memory that the weights take.
func (s source) use() plan.WeightUse {
	u := plan.UseOf(s.tensors)
	u.Formats, u.Ordered = s.config.Formats(s.named), s.config.Ordered(s.named)
	u.Stacked = s.config.Stacked(s.named)
	reordered := s.config.Reordered(s.named)
	made, sources := s.config.Converted(s.named)
	u.Copied, u.Resident = u.Copied+reordered+made, max(0, u.Resident-reordered-sources)
	return u
}

// reading is a model whose weights are being read from its files.
type reading struct {
	*model.Loading
	source
	dev  device.Device
	keep bool // the files stay mapped for the life of the process, because the device reads the weights in place
}

// begin starts to copy the weights to dev. It closes the files if it fails, as wait does, and without keep when it is
// done. progress is called until wait returns, one call at a time.
func (s source) begin(dev device.Device, c model.Config, keep bool, progress func(float64)) (*reading, error) {
	l, err := model.BeginLoad(dev, c, s.named, progress)
	if err != nil {
		if changed := s.tensors.Unchanged(); changed != nil {
			err = changed // explains any other error
		}
		return nil, errors.Join(err, s.tensors.Close())
	}
	return &reading{l, s, dev, keep}, nil
}

// wait returns once the weights are on the device; their files may still be mapped for a moment. If it fails, the
// caller frees the model.
func (r *reading) wait() error {
	err := r.Wait()
	if changed := r.tensors.Unchanged(); changed != nil {
		err = changed
	}
	switch {
	case err != nil:
		err = errors.Join(err, r.tensors.Close())
	case !r.keep:
		err = r.tensors.Release()
	}
	return err
}

// load copies the weights to dev, and waits for that.
func (s source) load(dev device.Device, c model.Config, keep bool, progress func(float64)) (*model.Model, error) {
	r, err := s.begin(dev, c, keep, progress)
	if err != nil {
		return nil, err
	}
	if err = r.wait(); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return r.Model.Free(dev) })
	}
	return r.Model, nil
}

// maxConfig bounds config.json and generation_config.json, in bytes.
const maxConfig = 1 << 20

func readConfig(dir fs.FS) (model.Config, error) {
	raw, err := files.Read(dir, "config.json", maxConfig)
	if err != nil {
		return model.Config{}, err
	}
	generation, err := files.Read(dir, generationConfig, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return model.Config{}, err
	}
	c, err := model.ParseConfig(raw, generation)
	if err != nil {
		return c, err
	}
	return c.Embedder(func(name string) ([]byte, error) { return files.Read(dir, name, maxConfig) })
}

// Headers reads the config, and checks the headers of the weights if there are any. It leaves
// no file mapped.
func Headers(files fs.FS) (c model.Config, use plan.WeightUse, err error) {
	s, err := openSource(files)
	if _, gguf := files.(weights.GGUF); !gguf && errors.Is(err, fs.ErrNotExist) {
		c, err = readConfig(files)
		return c, use, err
	}
	if err != nil {
		return s.config, use, err
	}
	return s.headers()
}

// headers returns the config and what the weights are used for, and closes the weights.
func (s source) headers() (c model.Config, use plan.WeightUse, err error) {
	use = s.use()
	use.Unmapped = s.tensors.Mapped()
	return s.config, use, s.tensors.Close()
}
