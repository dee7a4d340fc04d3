package scheduler

import (
	"reel.internal/reel/generator/internal/kv"
	"reel.internal/reel/kernels"
)

// Sequence is one request as the scheduler sees it. The caller sets the exported fields.
type Sequence struct {
	Prompt    []int32
	MaxTokens int // clamped to the context by Add
	// Sampling, if it is Masked, has each sampled row formed only after [Sequence.Allow].
	Sampling kernels.Sampling
	// User and Connection identify the sender: uids share the slots, a uid's names share the uid's, and the connections
	// of a name share the name's.
	User       User
	Connection uint64
	// Scope names the prompts that this one shares pages with; "" for none. ReadOnly finds pages and leaves none.
	Scope    string
	ReadOnly bool
	// Sampled holds the tokens that were delivered, of a sequence that may move out; see [Sequence.Promised].
	Sampled []int32
	// Drafts is how many drafts the sequence gets in the step that is being formed, MayDraft how many it may get; see
	// Options.PlanDrafts.
	Drafts, MayDraft int
	// Owner is the caller's; the scheduler does not touch it.
	Owner any

	slot       int32
	generation int32
	pages      []int32    // by index in the block table
	prefilled  int        // prompt tokens that formed steps contain, or whose pages were found
	sampled    int        // tokens that formed steps sample, including those that the host does not know yet
	length     int        // tokens with keys and values: rows in formed steps, and those of found pages; see verify.go
	published  int        // pages that formed steps have a block table entry for
	moved      []int32    // block table indices below published that changed since a step carried them
	moving     int        // pages that are being copied; while there are any, no step may name the sequence
	lastStep   uint64     // the last step that names the sequence
	found      []*kv.Node // while it waits: the pages of its prompt that were found last
	counted    counted    // those pages, while it waits
	tail       *kv.Node   // the last of its pages that prompts can find; nil at the root
	ended      bool       // its prompt's last tokens, fewer than a page, were reread
	unchained  bool       // it neither finds nor leaves further pages
	cached     int        // tokens of pages that it found
	promised   int        // places of the host tier that are reserved for it; 0: it has all pages that it may need
	places     []int32    // of its pages in the host tier, from the begin of the copies out until that of those back
	starved    bool       // it has no page for its next row
	allowed    bool       // the mask of its next token is there
	drafts     []int32    // of a masked sequence: tokens that may be drafts of its next row
	passed     int        // sequences that joined while it was the next to come back
	burst      bool       // its prompt is one of the burst
	asks       bool       // its prompt is counted in its shares
	restore    bool       // its slot must be restored before its next row
	heldBack   uint64     // the round of Next in which its prompt gets no further rows
	state      state
	share      *share  // its connection's, from Add until its slot and pages are free
	arrival    uint64  // order of Add
	came       float64 // Scheduler.elapsed at Add
}

// User says whose a sequence is: its sender's uid, and the name that the sender gave it to divide that uid; "" for
// none. What one user leaves to others is counted by uid alone: a name is no further user.
type User struct {
	UID  uint32
	Name string
}

// owner returns whose pages the sequence leaves.
func (q *Sequence) owner() kv.Owner { return kv.Owner{User: uint64(q.User.UID), Scope: q.Scope} }

type state uint8

const (
	waiting state = iota
	prefilling
	decoding
	movingOut // it gets no further rows; steps that name it, or copies of its pages, may still run
	out       // its pages are in the host tier
	leaving   // removed; steps that name it, or copies of its pages, may still run
	gone
)

// Running reports whether the sequence holds a slot and was not removed.
func (q *Sequence) Running() bool {
	return q.state == prefilling || q.state == decoding || q.state == movingOut
}

// HasJoined reports whether the sequence was given a slot and was not removed; it may have moved out since.
func (q *Sequence) HasJoined() bool { return q.Running() || q.state == out }

// Promised reports whether the sequence may move out. The caller then appends its tokens to Sampled.
func (q *Sequence) Promised() bool { return q.promised > 0 }

// Slot returns the slot of a running sequence and its generation, which together identify its records.
func (q *Sequence) Slot() (slot, generation int32) { return q.slot, q.generation }

// Cached returns the number of prompt tokens whose keys and values were found.
func (q *Sequence) Cached() int { return q.cached }

// Allow notes that the mask of q's next token is there, with the masks after some drafts, which stay unchanged until
// that step is formed. The next step that samples q lists it in Batch.Masked; a decode step may have the first of the
// drafts, Drafts of them.
func (q *Sequence) Allow(drafts []int32) {
	q.allowed, q.drafts = true, drafts
	q.beginPrompt()
}

// ready reports whether the next step may give q a row in this state: none of its pages is moving, it has tokens left
// to sample, and the mask for them. Without a mask its last token may be in a step in flight.
func (s *Scheduler) ready(q *Sequence, in state) bool {
	return q.state == in && q.moving == 0 && !q.starved && q.sampled < q.MaxTokens && !s.lacksMask(q)
}

// lacksMask reports whether q's next row waits for a mask. The rest of a prompt that fits one step waits as a whole:
// the mask is nearly there, and a step for the last token alone would take longer.
func (s *Scheduler) lacksMask(q *Sequence) bool {
	return q.Sampling.Masked && !q.allowed && len(q.Prompt)-q.prefilled <= s.Chunk
}
