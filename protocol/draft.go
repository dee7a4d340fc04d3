package protocol

// MaxDrafts is the most tokens that are guessed for a sequence in one step.
const MaxDrafts = 7

// Drafters guess tokens: the values of the field drafter of Drafts.
const (
	DrafterOff    = "off"    // none: no token is guessed
	DrafterLookup = "lookup" // how the text went on where its last tokens occurred before
	DrafterGiven  = "given"  // what requests predict, for measurements
)

// Drafts describes how a generator guesses tokens, and how often the guesses were right.
type Drafts struct {
	Drafter string `msgpack:"drafter" json:"drafter"` // one of the Drafter… values; empty while unknown
	Tokens  int    `msgpack:"tokens" json:"tokens"`   // for a sequence in one step, at most
	// Counts has an entry for each number of drafts that a step had for a sequence, the smallest first.
	Counts []DraftCount `msgpack:"counts,omitempty" json:"counts,omitempty"`
}

// DraftCount counts the steps that had a number of drafts for a sequence. A step of two sequences counts twice.
type DraftCount struct {
	Drafts   int    `msgpack:"drafts" json:"drafts"` // 1 to MaxDrafts
	Steps    uint64 `msgpack:"steps" json:"steps"`
	Drafted  uint64 `msgpack:"drafted" json:"drafted"`   // tokens
	Accepted uint64 `msgpack:"accepted" json:"accepted"` // those of them that were drawn
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
