package assembly

import (
	"maps"
	"slices"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// embeddingOf returns what vectors a model makes; nil if it draws tokens instead.
func embeddingOf(c model.Config) *server.Embedding {
	e := c.Embedding
	if e == nil {
		return nil
	}
	least := e.Least
	if least == 0 {
		least = c.Hidden
	}
	return &server.Embedding{Texts: e.Prompts, Default: e.Default, Embeddings: protocol.Embeddings{Dimensions: c.Hidden,
		Least: least, Normalized: e.Unit, Prompts: slices.Sorted(maps.Keys(e.Prompts))}}
}
