package scheduler

import (
	"fmt"
	"slices"
	"time"

	"reel.internal/reel/kernels"
)

// simulation is a device beside a scheduler. It holds in each page and place the values that the rows would have
// written, and checks at each row that all values before it are there: no step may read a page that is being copied,
// that was given to another sequence, or that holds another prompt's values or those of sampled tokens. Steps run in
// order at any time until they complete; copies run at the last moment.
type simulation struct {
	s     *Scheduler
	pick  func(n int) int // a random number below n
	fault func(format string, args ...any)

	before, after        func() // called around the forming of steps; tests plant faults in them
	keepStale, keepEarly bool   // plant steps that are not rebuilt after a move, or do not wait for it

	page, place [][]uint64 // values by page and offset
	slots       []simulatedSlot
	steps       []*simulatedStep // enqueued and not completed, oldest first
	copies      []Transfer       // under way, oldest first
	moves       []*simulatedMove
	texts       map[*Sequence]*text
	masks       []*Sequence // whose masks are being made
	all         []*Sequence
	idle        int // rounds without progress

	drafted, stood int                                  // drafts in steps, and those of them that stood
	maskedStood    int                                  // of masked sequences
	mixed, padded  int                                  // mixed steps, and those of them with padding
	accepted       func(q *Sequence, drafts, stand int) // what is called with them; the scheduler's, or a fault
}

// text is what a sequence must compute.
type text struct {
	tokens []int32  // prompt, then sampled ones
	values []uint64 // by position
	given  int      // tokens delivered
	masks  int      // masks that are there
	drafts []int32  // those that came with the last mask
}

type simulatedSlot struct {
	table   map[int32]int32
	history []int32
	length  int
	token   int32
	mask    simulatedMask
}

// simulatedMask is the mask of one token of a sequence.
type simulatedMask struct {
	q     *Sequence
	index int
}

type simulatedStep struct {
	kernels.Step
	batch    *Batch
	prefill  bool
	queries  int // rows of a sequence, if the step is no prefill
	mixed    int // generated rows of a mixed step
	drafts   []int
	counts   []int // results of each of sampled, if the step ran
	restored []kernels.SlotState
	sampled  []*Sequence
	owners   map[int32]*Sequence // by slot
	pages    map[int32][]int32   // by slot: the pages that its sequence has
	waits    []*simulatedMove
	wrote    map[int32]*Sequence // by page
	ran      bool
}

type simulatedMove struct {
	Move
	steps []*simulatedStep // that the copy waits for
	ran   bool
}

const unwritten = 1 // the value of memory that is being written, or never was

func mix(before uint64, token int32, class uint64) uint64 {
	x := (before ^ uint64(token)*0x9e3779b97f4a7c15 ^ class<<60) * 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

func newSimulation(o Options, places int, pick func(int) int, fault func(string, ...any)) (*simulation, error) {
	m := &simulation{}
	if o.MaxVerify > 0 {
		o.PlanDrafts = m.planDrafts
	}
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	s.AddPlaces(places)
	*m = simulation{s: s, accepted: s.Accepted, pick: pick, fault: fault, before: func() {}, after: func() {}, texts: map[*Sequence]*text{},
		slots: make([]simulatedSlot, o.MaxBatch+o.Reserve), page: make([][]uint64, o.Pages+1),
		place: make([][]uint64, places)}
	for i := range m.slots {
		m.slots[i] = simulatedSlot{table: map[int32]int32{}, history: make([]int32, o.Context)}
	}
	for i := range m.page {
		m.page[i] = m.poisoned()
	}
	for i := range m.place {
		m.place[i] = m.poisoned()
	}
	return m, nil
}

func (m *simulation) poisoned() []uint64 {
	v := make([]uint64, m.s.PageTokens)
	for i := range v {
		v[i] = unwritten
	}
	return v
}

// textOf returns what q must compute: values depend on scope, class, and all tokens before.
func textOf(q *Sequence, sampled int, number int) *text {
	x, value := &text{tokens: slices.Clone(q.Prompt)}, uint64(number)<<8
	if q.Scope != "" {
		value = 0
		for _, c := range q.Scope {
			value = mix(value, c, 2)
		}
	}
	for i := 0; i < len(q.Prompt)+sampled; i++ {
		class := uint64(0)
		if i >= len(q.Prompt) {
			class = 1
		}
		value = mix(value, x.tokens[i], class)
		x.values = append(x.values, value)
		if i >= len(q.Prompt)-1 {
			x.tokens = append(x.tokens, sampledAfter(value))
		}
	}
	return x
}

func sampledAfter(value uint64) int32 { return int32(value >> 7 % 3) }

// add queues a sequence. Its prompt begins like an earlier text, with sampled tokens or without, or is new.
func (m *simulation) add() {
	var prompt []int32
	if len(m.all) > 0 && m.pick(4) > 0 {
		earlier := m.texts[m.all[m.pick(len(m.all))]].tokens
		prompt = slices.Clone(earlier[:m.pick(len(earlier))])
	}
	for range 1 + m.pick(6) {
		prompt = append(prompt, int32(m.pick(2)))
	}
	user := User{UID: uint32(m.pick(3)), Name: []string{"", "", "key"}[m.pick(3)]}
	m.addPrompt(prompt, user, []string{fmt.Sprint(user), "all", ""}[[]int{0, 0, 0, 1, 2}[m.pick(5)]])
}

func (m *simulation) addPrompt(prompt []int32, user User, scope string) {
	prompt = prompt[:min(len(prompt), m.s.Context-26)]
	q := &Sequence{Prompt: prompt, MaxTokens: 1 + m.pick(25), User: user, ReadOnly: m.pick(8) == 0, Scope: scope}
	if q.Sampling.Masked = m.pick(3) == 0; q.Sampling.Masked {
		m.masks = append(m.masks, q)
	}
	m.texts[q] = textOf(q, q.MaxTokens, len(m.all))
	m.all = append(m.all, q)
	_ = m.s.Add(q)
}

// form forms a step and enqueues it. Pages may move in between.
func (m *simulation) form() bool {
	if len(m.steps) >= m.s.InFlight {
		return false
	}
	m.before()
	b := m.s.Next()
	m.after()
	m.s.Joined()
	if b == nil {
		return false
	}
	for m.pick(4) == 0 {
		m.relocate()
	}
	if m.s.Stale(b) && !m.keepStale {
		m.s.Rebuild(b)
	}
	m.enqueue(b)
	return true
}

func (m *simulation) enqueue(b *Batch) {
	step := &simulatedStep{batch: b, prefill: b.Prefill, sampled: slices.Clone(b.Sampled), owners: map[int32]*Sequence{},
		wrote: map[int32]*Sequence{}, queries: b.Queries, mixed: b.Generated, drafts: slices.Clone(b.Drafts), pages: map[int32][]int32{}}
	step.Number, step.Rows, step.Samples = b.Step.Number, slices.Clone(b.Step.Rows), slices.Clone(b.Step.Samples)
	step.Inits, step.Pages = slices.Clone(b.Step.Inits), slices.Clone(b.Step.Pages)
	for _, q := range append(slices.Clone(b.Served), b.Reread) {
		if q != nil {
			step.owners[q.slot], step.pages[q.slot] = q, slices.Clone(q.pages)
		}
	}
	for _, r := range b.Restored {
		state := r.State()
		state.Pages, state.History = slices.Clone(state.Pages), slices.Clone(state.History)
		step.restored = append(step.restored, state)
	}
	if m.s.WaitsForMove(b) && !m.keepEarly {
		step.waits = slices.Clone(m.moves)
	}
	for _, q := range b.Masked {
		m.slots[q.slot].mask = simulatedMask{q, m.texts[q].masks - 1}
	}
	m.steps = append(m.steps, step)
}

// relocate begins to move a page of some sequence.
func (m *simulation) relocate() {
	q := m.all[m.pick(len(m.all))]
	if move, ok := m.s.Relocate(q, m.pick(6)); ok {
		m.page[move.To] = m.poisoned()
		x := &simulatedMove{Move: move}
		for _, step := range m.steps {
			if step.Number <= move.After {
				x.steps = append(x.steps, step)
			}
		}
		m.moves = append(m.moves, x)
	}
}

// run runs the steps up to and including this one.
func (m *simulation) run(last *simulatedStep) {
	for _, step := range m.steps {
		if !step.ran {
			step.ran = true
			for _, move := range step.waits {
				m.copyMoved(move)
			}
			m.runStep(step)
		}
		if step == last {
			return
		}
	}
}

func (m *simulation) copyMoved(x *simulatedMove) {
	for _, step := range x.steps {
		if !step.ran {
			m.run(step)
		}
	}
	if !x.ran {
		x.ran = true
		copy(m.page[x.To], m.page[x.From])
	}
}

func (m *simulation) runStep(step *simulatedStep) {
	for _, state := range step.restored {
		slot := &m.slots[state.Init.Slot]
		slot.length, slot.token = len(state.History), state.Token
		copy(slot.history, state.History)
		for i, page := range state.Pages {
			slot.table[int32(i)] = page
		}
	}
	for _, init := range step.Inits {
		m.slots[init.Slot].length = 0
	}
	for _, e := range step.Pages {
		m.slots[e.Slot].table[e.Index] = e.Page
	}
	if step.queries > 1 {
		m.verify(step)
		return
	}
	m.checkMixed(step)
	for i, row := range step.Rows {
		if row.Slot == kernels.NoSlot {
			continue
		}
		m.row(step, row)
		if n := slices.Index(step.Samples, int32(i)); n >= 0 {
			q, slot := step.owners[row.Slot], &m.slots[row.Slot]
			if step.sampled[n] != q || slot.length < len(q.Prompt) {
				m.fault("step %d samples after %d of %d prompt tokens", step.Number, slot.length, len(q.Prompt))
				continue
			}
			if want := (simulatedMask{q, slot.length - len(q.Prompt)}); q.Sampling.Masked && slot.mask != want {
				m.fault("step %d samples token %d with the mask of %+v", step.Number, want.index, slot.mask)
			}
			slot.token = sampledAfter(m.value(slot, slot.length-1))
		}
	}
	if slices.Contains(step.Samples, -1) {
		m.fault("step %d samples a row that it does not have: its prompt was found up to the last token", step.Number)
	}
}

func (m *simulation) value(slot *simulatedSlot, position int) uint64 {
	return m.page[slot.table[int32(position/m.s.PageTokens)]][position%m.s.PageTokens]
}

// row runs one row, and checks all that it reads.
func (m *simulation) row(step *simulatedStep, row kernels.Row) {
	q, slot := step.owners[row.Slot], &m.slots[row.Slot]
	want, position, token := m.texts[q], int(row.Position), row.Token
	if row.Position == kernels.FromDevice {
		position, token = slot.length, slot.token
	}
	slot.length = position + 1
	if !m.mayWrite(step, row.Slot, position) {
		return
	}
	slot.history[position] = token
	for j := range position {
		page := slot.table[int32(j/m.s.PageTokens)]
		if other := step.wrote[page]; m.value(slot, j) != want.values[j] || other != nil && other != q {
			m.fault("step %d, position %d of %d prompt tokens: page %d does not hold the values of position %d",
				step.Number, position, len(q.Prompt), page, j)
		}
	}
	if !slices.Equal(slot.history[:position+1], want.tokens[:position+1]) {
		m.fault("step %d, position %d: history %v, wants %v", step.Number, position, slot.history[:position+1],
			want.tokens[:position+1])
	}
	page := slot.table[int32(position/m.s.PageTokens)]
	m.page[page][position%m.s.PageTokens], step.wrote[page] = want.values[position], q
}

// complete ends the oldest step: it delivers tokens, and removes sequences that have all of theirs.
func (m *simulation) complete() bool {
	if len(m.steps) == 0 {
		return false
	}
	step := m.steps[0]
	m.run(step)
	m.steps = m.steps[1:]
	for i, q := range step.sampled {
		if !q.Running() {
			continue
		}
		count := 1
		if step.queries > 1 {
			count = step.counts[i]
			m.accepted(q, step.drafts[i], count-1)
		}
		for ; count > 0 && q.Running(); count-- {
			m.deliver(q)
		}
		if q.Running() && q.Sampling.Masked {
			m.masks = append(m.masks, q)
		}
	}
	m.s.Complete(step.Number)
	if m.s.Gap > 0 {
		m.s.Took(step.batch, time.Duration(m.pick(1000)-1))
	}
	return true
}

// deliver delivers q's next token. A few of them end their sequences early.
func (m *simulation) deliver(q *Sequence) {
	want := m.texts[q]
	if q.Promised() {
		q.Sampled = append(q.Sampled, want.tokens[len(q.Prompt)+want.given])
	}
	if want.given++; want.given == q.MaxTokens || m.s.MaxVerify > 0 && m.pick(40) == 0 {
		m.s.Remove(q)
	}
}

// begin begins copies between the tiers.
func (m *simulation) begin() bool {
	begun := m.s.Transfers(1 + m.pick(4))
	for _, t := range begun {
		if t.Out {
			m.place[t.Place] = m.poisoned()
		} else {
			m.page[t.Page] = m.poisoned()
		}
	}
	m.copies = append(m.copies, begun...)
	return len(begun) > 0
}

// copied ends the oldest copy.
func (m *simulation) copied() bool {
	if len(m.copies) == 0 {
		return false
	}
	t := m.copies[0]
	m.copies = m.copies[1:]
	if t.Out {
		copy(m.place[t.Place], m.page[t.Page])
	} else {
		copy(m.page[t.Page], m.place[t.Place])
	}
	m.s.FinishTransfer(t)
	return true
}

// moved ends the oldest move.
func (m *simulation) moved() bool {
	if len(m.moves) == 0 {
		return false
	}
	x := m.moves[0]
	m.copyMoved(x)
	m.moves = m.moves[1:]
	m.s.FinishMove(x.Move)
	return true
}

// reread forms a step that reads an earlier text again.
func (m *simulation) reread() bool {
	if len(m.all) == 0 || len(m.steps) > 0 || !m.s.MayReread() {
		return false
	}
	q := m.all[m.pick(len(m.all))]
	return m.rereadAgain(&Sequence{Prompt: m.texts[q].tokens, User: q.User, Scope: q.Scope})
}

func (m *simulation) rereadAgain(again *Sequence) bool {
	if again.Scope == "" {
		return false
	}
	m.texts[again] = textOf(again, 1, 0)
	b := m.s.Reread(again)
	if b != nil {
		m.enqueue(b)
	}
	return b != nil
}

// converse waits until nobody does anything, reads an earlier text again, and adds a prompt that begins with it, or
// with a part of it.
func (m *simulation) converse() {
	m.drain()
	q := m.all[m.pick(len(m.all))]
	text := m.texts[q].tokens[:1+m.pick(min(m.s.Context-27, len(m.texts[q].tokens)))]
	again := &Sequence{Prompt: append(slices.Clone(text), 0), User: q.User, Scope: q.Scope}
	for m.s.MayReread() && m.rereadAgain(again) {
		m.drain()
	}
	prompt := slices.Clone(text[:len(text)-m.pick(min(len(text), m.s.PageTokens))])
	for range 1 + m.pick(2*m.s.PageTokens) {
		prompt = append(prompt, int32(m.pick(2)))
	}
	m.addPrompt(prompt, q.User, q.Scope)
}
