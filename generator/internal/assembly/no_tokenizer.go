package assembly

import (
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// idsOnly is the tokenizer of a model that has none. Such a model takes prompts as token ids,
// and its tokens have no text.
type idsOnly struct {
	gguf bool // the model is a GGUF file, beside which no tokenizer.json is read
}

// noTokenizer is the warning at the start of such a model.
const noTokenizer = "the model's directory has no tokenizer.json: only prompts of token ids are served, and tokens " +
	"have no text; download the checkpoint's tokenizer.json and start the generator again"

// noGGUFTokenizer is the warning at the start of a GGUF file without one.
const noGGUFTokenizer = "the file has no tokenizer: only prompts of token ids are served, and tokens have no text; " +
	"download a complete GGUF file and start the generator again"

// download returns what gets the tokenizer.
func (t idsOnly) download() string {
	if t.gguf {
		return "download a complete GGUF file and start the generator again"
	}
	return "download the checkpoint's tokenizer.json and start the generator again"
}

// EncodeMarked refuses text.
func (t idsOnly) EncodeMarked(marked.Text, bool) ([]int32, error) {
	lacks := "this model has no tokenizer.json"
	if t.gguf {
		lacks = "the GGUF file has no tokenizer"
	}
	return nil, protocol.Errorf(protocol.CodeBadRequest, "send the prompt as token ids, as in reel --tokens 1,2,3; or "+
		t.download(), "the text cannot be tokenized: %s", lacks)
}

// TokenText returns an empty text.
func (idsOnly) TokenText(int32) string { return "" }

// MaxTokenBytes returns 1, which bounds a text before it is refused.
func (idsOnly) MaxTokenBytes() int { return 1 }

// Push decodes nothing.
func (idsOnly) Push(int32) string { return "" }

// Held returns 0.
func (idsOnly) Held() int { return 0 }

// Flush returns an empty text.
func (idsOnly) Flush() string { return "" }
