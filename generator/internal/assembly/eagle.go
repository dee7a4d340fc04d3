package assembly

import (
	"errors"
	"fmt"
	"io/fs"

	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/weights"
)

// isEagle reports whether files are those of an EAGLE-3 head.
func isEagle(dir fs.FS) (bool, error) {
	if _, gguf := dir.(weights.GGUF); gguf {
		return false, nil
	}
	raw, err := files.Read(dir, "config.json", maxConfig)
	return err == nil && model.IsEagle(raw), err
}

// openEagle reads the config and the headers of an EAGLE-3 head for a model, and what d2t says.
func openEagle(dir fs.FS, target model.Config) (s source, err error) {
	if s.config, err = eagleConfig(dir); err != nil {
		return s, err
	}
	if s.tensors, err = weights.Open(dir); err != nil {
		return s, fmt.Errorf("%w%s", err, pickled(dir))
	}
	if s.config, s.named, err = s.config.EagleTensors(s.tensors); err == nil {
		if s.config, err = s.config.ForTarget(target); err == nil {
			err = s.config.CheckTensors(s.named)
		}
	}
	if err != nil {
		return s, errors.Join(err, s.tensors.Close())
	}
	return s, nil
}

// eagleConfig reads the config of an EAGLE-3 head.
func eagleConfig(dir fs.FS) (c model.Config, err error) {
	raw, err := files.Read(dir, "config.json", maxConfig)
	if err == nil {
		c, err = model.ParseEagle(raw)
	}
	return c, err
}

// pickle is the file of older checkpoints, which runs code when it is read.
const pickle = "pytorch_model.bin"

// pickled says how to convert a checkpoint that has no safetensors but a pickle.
func pickled(dir fs.FS) string {
	if _, err := fs.Stat(dir, pickle); err != nil {
		return ""
	}
	return "; there is " + pickle + ", which is not read since it may run code: convert it once, in that directory, " +
		"with " + `python -c "import torch, safetensors.torch as s; ` +
		`s.save_file({k: v.contiguous() for k, v in torch.load('` + pickle + `', weights_only=True).items()}, 'model.safetensors')"`
}

// eagleHeaders is [Headers] for an EAGLE-3 head.
func eagleHeaders(dir fs.FS, target model.Config) (c model.Config, use plan.WeightUse, err error) {
	s, err := openEagle(dir, target)
	if errors.Is(err, fs.ErrNotExist) && pickled(dir) == "" {
		if c, err = eagleConfig(dir); err == nil {
			c.Eagle.Mapped, c.Eagle.Embedding = c.Vocab != c.Eagle.Vocab, c.Hidden != target.Hidden
			c, err = c.ForTarget(target)
		}
		return c, use, err
	}
	if err != nil {
		return s.config, use, err
	}
	return s.headers()
}
