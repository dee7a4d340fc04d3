package assembly

import (
	"errors"
	"io/fs"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// Checkpoint is the directory of a model, open to be converted.
type Checkpoint struct {
	Config       model.Config
	Tensors      model.Tensors       // under their published names
	File         *weights.Checkpoint // which holds them
	ChatTemplate string              // "" if there is none
	Tokens       map[string]string   // texts of special tokens by their names in templates, such as bos_token
}

// OpenCheckpoint opens the directory of a model, and checks its headers. The error is a [config.ErrConfig].
func OpenCheckpoint(files fs.FS) (c Checkpoint, err error) {
	if g, ok := files.(weights.GGUF); ok {
		return c, config.Refuse(config.ErrConfig, "%s is a GGUF file already: give the directory, or ORG/NAME, that it "+
			"was made from", g.GGUF())
	}
	s, err := openSource(files)
	if err != nil {
		return c, config.OfKind(err, config.ErrConfig)
	}
	c.Config, c.Tensors, c.File = s.config, s.named, s.tensors
	source, err := chatSource(files)
	if err != nil {
		return c, errors.Join(config.OfKind(err, config.ErrConfig), s.tensors.Close())
	}
	c.ChatTemplate, c.Tokens = source.Template, source.Tokens
	return c, nil
}
