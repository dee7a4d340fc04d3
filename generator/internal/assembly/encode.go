package assembly

import "reel.internal/reel/generator/internal/marked"

// Encode returns the tokens of a text, of which no part is a control token. With special the tokens that begin a prompt
// are in front. A model without a tokenizer refuses it.
func (l Prepared) Encode(text string, special bool) ([]int32, error) {
	return l.tokenizer.EncodeMarked(marked.Data(text), special)
}
