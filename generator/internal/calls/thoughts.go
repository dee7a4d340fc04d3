package calls

import "encoding/json"

// Place is where a prompt ends.
type Place int

// The places.
const (
	Before Place = iota // before the completion's reasoning, if the model writes some
	Within              // after the tag that begins reasoning
	After               // after the tag that ends it
)

// Thoughts is reasoning that comes before the text of a format, as reel-format takes it.
type Thoughts struct {
	think *thought
	drawn []int32
}

// NewThoughts returns the reasoning that a completion after a prompt may have, or must have after a prompt that ends
// within it. control has the markers among control tokens. It returns false if there is none.
func NewThoughts(f Form, control map[int32]string, place Place) (t Thoughts, may bool) {
	if f.End == "" || place == After {
		return t, false
	}
	r := Required{control: tokensOf(control)}
	r.think(f, place == Within)
	return Thoughts{r.Think, r.drawn}, true
}

// Text returns the reasoning for reel-format, and the control tokens that it may have.
func (t Thoughts) Text() (text string, control []int32) {
	raw, _ := json.Marshal(t.think) // of texts and numbers
	return string(raw), t.drawn
}
