package assembly

import "errors"

// idsOnly stands for the tokenizer of a model that has none: such a model takes
// prompts as token ids, and its tokens have no text.
type idsOnly struct{}

// errNoTokenizer answers a prompt of text.
var errNoTokenizer = errors.New("this model has no tokenizer.json: send the prompt as tokens")

// Encode refuses text.
func (idsOnly) Encode(string) ([]int32, error) { return nil, errNoTokenizer }

// EncodeRendered refuses text.
func (idsOnly) EncodeRendered(string) ([]int32, error) { return nil, errNoTokenizer }

// TokenText is empty.
func (idsOnly) TokenText(int32) string { return "" }

// MaxTokenBytes bounds a text before it is refused: by a byte for each token.
func (idsOnly) MaxTokenBytes() int { return 1 }

// Push, Held and Flush decode nothing.
func (idsOnly) Push(int32) string { return "" }

// Held is 0.
func (idsOnly) Held() int { return 0 }

// Flush is empty.
func (idsOnly) Flush() string { return "" }
