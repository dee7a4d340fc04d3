// Package tiny holds the embedded model: a Llama of a few million parameters,
// trained on Shakespeare's plays, as an ordinary Hugging Face directory.
// README.md describes its training and its scores.
package tiny

import "embed"

// Files is the model's directory. File names are those of Hugging Face.
//
//go:embed config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors
var Files embed.FS
