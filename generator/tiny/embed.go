// Package tiny holds the embedded model: a Llama of a few million parameters,
// trained on Shakespeare's plays, as an ordinary Hugging Face directory.
// README.md says how it was made and what it scores.
package tiny

import "embed"

// Files is the model's directory, with the names that Hugging Face gives them.
//
//go:embed config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors
var Files embed.FS
