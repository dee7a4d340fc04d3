package calls

import "strings"

// Turns of models with titled reasoning.
const (
	turnBegin = "<|turn>model\n"
	turnEnd   = "<turn|>\n"
)

// Opening returns what is missing at the end of a template's prompt before the answer may begin; empty: nothing. Gemma
// 4's template goes on after the results of tools within the model's turn. If a text came with the calls, it has ended
// that turn, and begins no other. (llama.cpp adds the same.)
func (f Form) Opening(prompt string) string {
	if f.Title != "" && strings.HasSuffix(prompt, turnEnd) {
		return turnBegin
	}
	return ""
}

// beginReasoning begins reasoning after its tag. Its title is left out with the tag if reasoning comes apart.
func (r *Reader) beginReasoning() {
	r.state, r.skip = inReasoning, r.options.Apart
	if r.options.Apart && r.options.Form.Title != "" {
		r.state, r.skip = inTitle, false
	}
}

// titleByte takes a byte of a title, or the one after it.
func (r *Reader) titleByte(c byte) {
	title, n := r.options.Form.Title, len(r.word)
	if n < len(title) && c == title[n] {
		r.word = append(r.word, c)
		return
	}
	r.endTitle(isSpace(c) || c == '<')
	r.plain(c)
}

// endTitle ends a title. What is none is reasoning; alone says that nothing of its word follows.
func (r *Reader) endTitle(alone bool) {
	none := len(r.word) > 0 && !(alone && string(r.word) == r.options.Form.Title)
	if r.state = inReasoning; none {
		r.settle(r.at)
		return
	}
	r.clear(r.at)
	r.skip = true
}

// reasonsAgain reports whether reasoning may begin here though an answer has: Gemma 4 writes such channels, most of
// them empty, and tags that end none. The text of a format has no reasoning.
func (r *Reader) reasonsAgain() bool {
	return r.options.Form.Title != "" && !r.options.Exact &&
		(r.state == atAnswer || r.state == inAnswer || r.state == afterCall)
}
