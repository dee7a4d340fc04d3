package protocol

import (
	"fmt"
	"strconv"

	"github.com/vmihailenco/msgpack/v5"
)

// The words of a Draft.
const (
	DraftOn  = "on"  // as many as the generator guesses
	DraftOff = "off" // none
)

// Draft is what a request says about guesses: a word, or the most tokens that a step may guess for it. On the wire it
// is a string or a whole number.
type Draft struct {
	Word   string // DraftOn or DraftOff; empty: Tokens counts
	Tokens int    // 0 to MaxDrafts
}

// ParseDraft reads on, off or a number of tokens. The error's code is CodeBadRequest.
func ParseDraft(text string) (*Draft, *Error) {
	d := draftWord(text)
	if n, err := strconv.Atoi(text); err == nil {
		d = Draft{Tokens: n}
	}
	return &d, d.check()
}

// draftWord returns the Draft of a word; that of an empty one is out of bounds.
func draftWord(text string) Draft {
	if text == "" {
		return Draft{Tokens: -1}
	}
	return Draft{Word: text}
}

// String returns the text that ParseDraft reads.
func (d Draft) String() string {
	if d.Word != "" {
		return d.Word
	}
	return strconv.Itoa(d.Tokens)
}

// Most returns how many tokens a step may guess; without a Draft as many as the generator guesses.
func (d *Draft) Most() int {
	switch {
	case d == nil || d.Word == DraftOn:
		return MaxDrafts
	case d.Word != "":
		return 0
	}
	return d.Tokens
}

func (d *Draft) check() *Error {
	if d == nil || d.Word == DraftOn || d.Word == DraftOff ||
		d.Word == "" && d.Tokens >= 0 && d.Tokens <= MaxDrafts {
		return nil
	}
	return Errorf(CodeBadRequest, "correct the field or leave it out",
		"draft is %.64q: it must be on, off or a number, 0 to %d", d, MaxDrafts)
}

// EncodeMsgpack writes the word or the number.
func (d *Draft) EncodeMsgpack(enc *msgpack.Encoder) error {
	if d.Word != "" {
		return enc.EncodeString(d.Word)
	}
	return enc.EncodeInt(int64(d.Tokens))
}

// DecodeMsgpack reads what the schema has checked.
func (d *Draft) DecodeMsgpack(dec *msgpack.Decoder) error {
	value, err := dec.DecodeInterfaceLoose()
	switch v := value.(type) {
	case string:
		*d = draftWord(v)
	case int64:
		d.Tokens = int(v)
	case uint64:
		d.Tokens = int(v)
	default:
		return fmt.Errorf("protocol: a draft of the Go type %T, %w", value, err)
	}
	return err
}

func (g *Generate) checkDraft(l Limits) *Error {
	if e := g.Draft.check(); e != nil {
		return e
	}
	if n := len(g.Prediction); n > l.Context {
		return outOfBounds("the number of tokens of prediction", n, 0, l.Context)
	}
	for i, t := range g.Prediction {
		if t < 0 || int(t) >= l.Vocab {
			return outOfBounds(fmt.Sprintf("prediction[%d]", i), t, 0, l.Vocab-1)
		}
	}
	return nil
}

// MaxDrafts is the most tokens that are guessed for a sequence in one step.
const MaxDrafts = 7

// Drafters guess tokens: the values of the field drafter of Drafts.
const (
	DrafterOff    = "off"    // none: no token is guessed
	DrafterLookup = "lookup" // how the text went on where its last tokens occurred before
	DrafterModel  = "model"  // another model
	DrafterEagle  = "eagle"  // an EAGLE-3 head, which reads the model's hidden states
	DrafterGiven  = "given"  // what requests predict, for measurements
)

// Drafts describes how a generator guesses tokens, and how often the guesses were right.
type Drafts struct {
	Drafter string `msgpack:"drafter" json:"drafter"` // one of the Drafter… values; empty while unknown
	Tokens  int    `msgpack:"tokens" json:"tokens"`   // for a sequence in one step, at most
	// Counts has an entry for each number of drafts that a step had for a sequence, the smallest first: those of the
	// drafter, then those of formats.
	Counts []DraftCount `msgpack:"counts,omitempty" json:"counts,omitempty"`
}

// DraftCount counts the steps that had a number of drafts for a sequence. A step of two sequences counts twice.
type DraftCount struct {
	Drafts   int    `msgpack:"drafts" json:"drafts"` // 1 to MaxDrafts
	Steps    uint64 `msgpack:"steps" json:"steps"`
	Drafted  uint64 `msgpack:"drafted" json:"drafted"`   // tokens
	Accepted uint64 `msgpack:"accepted" json:"accepted"` // those of them that were drawn
	// Format says that the sequence's format forced them, not the drafter. It was added to version 1.
	Format bool `msgpack:"format,omitempty" json:"format,omitempty"`
}

// Total returns the sums over all numbers of drafts; its Drafts is 0.
func (d *Drafts) Total() (sum DraftCount) {
	for _, c := range d.Counts {
		sum.Steps += c.Steps
		sum.Drafted += c.Drafted
		sum.Accepted += c.Accepted
	}
	return sum
}
