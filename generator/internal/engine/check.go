package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Checked is the result of Check for one shape of step.
type Checked struct {
	Report graphs.Report // of the readiness detector
	// Verified is the number of replays that were compared with the eager run, bit for bit.
	Verified int
}

// Check proves, for every graph of the lattice, that the pass can be captured and that replays are right. The
// readiness detector runs the pass op by op; then an exact and a padded replay are compared with the eager run
// over poisoned memory. On a [device.Guard] it also reports writes outside buffers. Call it instead of Run. each is
// called with the result of every shape. Check returns the first error.
func (e *Engine) Check(each func(Checked, error)) error {
	var first error
	for _, k := range e.opts.Lattice() {
		c, err := e.checkKey(k)
		err = errors.Join(err, e.intact())
		each(c, err)
		if first == nil {
			first = err
		}
	}
	return first
}

// Close frees the engine's memory. Call it only if Run was not called.
func (e *Engine) Close() error { return e.close(nil) }

// checkKey does the work of Check for one key.
func (e *Engine) checkKey(k graphs.Key) (Checked, error) {
	t := &trial{e: e, key: k, size: size(k)}
	if err := t.Prepare(); err != nil {
		return Checked{Report: graphs.Report{Key: k}}, err
	}
	report, err := graphs.Inspect(e.dev, e.stream, e.pass, k)
	e.next++
	c := Checked{Report: report}
	if err != nil {
		return c, err
	}
	if faults := report.Faults(); len(faults) > 0 {
		return c, fmt.Errorf("%s cannot be captured: %s", k, faults[0])
	}
	for _, n := range []int{size(k), size(k) - 1} {
		if n < 1 {
			continue
		}
		t.size = n
		if err := t.verify(); err != nil {
			return c, err
		}
		c.Verified++
	}
	return c, nil
}

// intact reports writes of the steps so far outside buffers, if the device is a [device.Guard].
func (e *Engine) intact() error {
	intact := e.dev.Capabilities().Intact
	if intact == nil {
		return nil
	}
	return errors.Join(intact(), e.memory.Intact(e.dev))
}

// size returns the dimension of a key that padding extends: sequences, or the tokens of a chunk.
func size(k graphs.Key) int {
	if k.HasPrompts() {
		return int(k.Queries)
	}
	return int(k.Rows)
}

// trial is a step of key's launch class. It implements [graphs.Trial].
type trial struct {
	e    *Engine
	key  graphs.Key
	size int // without padding
}

// verify compares a replay of the key's graph with the eager run of a step of t.size.
func (t *trial) verify() error {
	plan := t.e.pool.Acquire(t.key)
	if plan.Kind != graphs.Exact {
		return fmt.Errorf("%s was not captured: raise --max-graphs or --graph-memory", t.key)
	}
	unpadded := t.key
	if t.key.HasPrompts() {
		unpadded.Queries = int32(t.size)
	} else {
		unpadded.Rows = int32(t.size)
	}
	return graphs.Verify(t, unpadded, plan)
}

// trialPrompt is the length of the prompt of each sequence that runs in a trial.
const trialPrompt = 3

// running returns how many sequences run in the trial. They have the first slots. In a mixed trial the next slot is that
// of the prompt, and one generated row is padding if there are several.
func (t *trial) running() int {
	switch t.key.Class {
	case graphs.PrefillClass:
		return 0
	case graphs.MixedClass:
		return max(1, min(int(t.key.Rows), t.e.opts.mixedSamples())-1)
	}
	return t.size
}

// Prepare poisons the arena and the KV pool, runs the prompts of sequences that run in the trial, poisons the arena
// again, and writes the step's descriptor.
func (t *trial) Prepare() error {
	if err := t.poison(append(t.e.memory.Activations(), t.e.pools()...)); err != nil {
		return err
	}
	if err := t.prompts(); err != nil {
		return err
	}
	if err := t.poison(t.e.memory.Activations()); err != nil {
		return err
	}
	s := t.step()
	return t.e.memory.Write(&s)
}

// poison fills the buffers with NaN.
func (t *trial) poison(buffers []device.Buffer) error {
	for _, b := range buffers {
		if err := t.e.stream.Launch(kernels.Fill{Data: b, Value: kernels.Poison}); err != nil {
			return err
		}
	}
	return t.e.stream.Synchronize()
}

// prompts runs each sequence's prompt, one sequence a step.
func (t *trial) prompts() error {
	for slot := range int32(t.running()) {
		s := kernels.Step{Number: t.e.next, Inits: []kernels.Init{t.init(slot)},
			Pages: t.pages(slot, trialPrompt+t.queries())}
		for p := range int32(trialPrompt) {
			s.Rows = append(s.Rows, kernels.Row{Slot: slot, Position: p, Token: t.token(slot, p)})
		}
		s.Samples = []int32{trialPrompt - 1}
		if err := t.e.memory.Write(&s); err != nil {
			return err
		}
		if err := t.Run(graphs.Plan{Key: graphs.Prefill(trialPrompt)}); err != nil {
			return err
		}
	}
	return nil
}

// step returns the step to verify.
func (t *trial) step() kernels.Step {
	s := kernels.Step{Number: t.e.next}
	for slot := range int32(t.running()) {
		for i := range t.queries() {
			s.Samples = append(s.Samples, int32(len(s.Rows)))
			s.Rows = append(s.Rows, t.decodeRow(slot, i))
		}
	}
	if t.key.HasPrompts() {
		t.addPrompts(&s)
	}
	return s
}

// addPrompts adds the rows of prompts of t.size tokens together, in a mixed step after padding of the generated rows.
func (t *trial) addPrompts(s *kernels.Step) {
	for t.key.Class == graphs.MixedClass && len(s.Rows) < int(t.key.Rows) {
		s.Rows = append(s.Rows, kernels.Row{Slot: kernels.NoSlot})
	}
	slot, page := int32(t.running()), int32(1) // from the pool's begin
	for _, tokens := range t.promptLengths() {
		for i := range int32(tokens) {
			s.Rows = append(s.Rows, kernels.Row{Slot: slot, Position: i, Token: t.token(slot, i)})
		}
		s.Inits = append(s.Inits, t.init(slot))
		for i := range t.pagesOf(tokens) {
			s.Pages = append(s.Pages, kernels.PageEntry{Slot: slot, Index: int32(i), Page: page})
			page++
		}
		s.Samples = append(s.Samples, int32(len(s.Rows)-1))
		slot++
	}
}

// promptLengths returns the length of each prompt of the trial. There is one, but three in a step of several prompts that
// has tokens, slots and pages for them.
func (t *trial) promptLengths() []int {
	alone, o := []int{t.size}, &t.e.opts
	if t.key != t.key.OfSeveral() || t.size < 3 || o.Prompts() < 3 {
		return alone
	}
	lengths, pages := []int{t.size / 2, t.size / 3, t.size - t.size/2 - t.size/3}, 0
	for _, n := range lengths {
		pages += t.pagesOf(n)
	}
	if pages >= o.Pages {
		return alone
	}
	return lengths
}

// pagesOf returns the number of pages that hold this number of tokens.
func (t *trial) pagesOf(tokens int) int {
	return (tokens + t.e.opts.PageTokens - 1) / t.e.opts.PageTokens
}

// queries returns the rows of each sequence that runs.
func (t *trial) queries() int {
	if t.key.HasPrompts() {
		return 1
	}
	return int(t.key.Queries)
}

// decodeRow returns the i-th row of a slot's sequence in a decode or verify step. In the latter every second sequence
// has one draft less than the others.
func (t *trial) decodeRow(slot int32, i int) kernels.Row {
	switch {
	case i == 0:
		return kernels.Row{Slot: slot, Position: kernels.FromDevice, Token: kernels.FromDevice}
	case i == t.queries()-1 && slot%2 == 1:
		return kernels.Row{Slot: kernels.NoSlot}
	}
	token := int32(kernels.FromDraft)
	if slot%2 == 0 { // a mask, see init
		token = t.token(slot, int32(i))
	}
	return kernels.Row{Slot: slot, Position: kernels.FromDevice, Token: token}
}

// init returns a slot's initial state, with every sampling filter on. Every second slot also has penalties of the
// completion, a bias and a mask.
func (t *trial) init(slot int32) kernels.Init {
	s := kernels.Sampling{Temperature: 0.8, TopK: 50, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1,
		Logprobs: kernels.MaxTop, Seed: uint64(slot)}
	if slot%2 == 0 {
		s.PresencePenalty, s.FrequencyPenalty, s.Masked = 0.5, 0.25, true
		s.Biases = []kernels.Bias{{Token: t.token(slot, 0), Value: 1}}
		for i, mask := 0, t.e.memory.Masks(slot); i < len(mask); i++ {
			mask[i] = 0x55555555 // every second token
		}
	}
	// The last prompt token counts as sampled, so that a draft model computes it again as it does sampled ones.
	return kernels.Init{Slot: slot, Generation: 1, Prompt: trialPrompt - 1, Sampling: s}
}

// pages returns the block table entries of a slot with this number of tokens. Pages come from the pool's end.
func (t *trial) pages(slot int32, tokens int) (p []kernels.PageEntry) {
	n := t.pagesOf(tokens)
	for i := range n {
		p = append(p, kernels.PageEntry{Slot: slot, Index: int32(i), Page: int32(t.e.opts.Pages - int(slot)*n - i)})
	}
	return p
}

// token returns a token of the vocabulary, a function of slot and position.
func (t *trial) token(slot, position int32) int32 {
	return (slot*131 + position*17 + 7) % int32(t.e.model.Config.Vocab)
}

// Run runs the step that Prepare wrote, and waits for it.
func (t *trial) Run(plan graphs.Plan) error {
	if err := t.e.pool.Launch(t.e.stream, plan, t.e.next); err != nil {
		return err
	}
	t.e.next++
	return t.e.stream.Synchronize()
}

// pools returns the memory of the KV pools.
func (e *Engine) pools() (all []device.Buffer) {
	for _, kv := range e.memory.Pools() {
		all = append(all, kv.Data)
	}
	return all
}

// logits returns the logits of the sampled rows, or their embeddings.
func (t *trial) logits(samples int) ([]byte, error) {
	c := t.e.model.Config
	if t.e.opts.Embeddings {
		v := make([]float32, c.Hidden)
		var all []byte
		for i := range samples {
			t.e.memory.Vector(t.e.next-1, i, v)
			all, _ = binary.Append(all, binary.LittleEndian, v) // it always encodes floats
		}
		return all, nil
	}
	return t.e.readRanks(t.e.memory.Logits().Slice(0, 4*int64(samples*c.Vocab)))
}

// readRanks returns the content of a buffer on each rank, one after another.
func (e *Engine) readRanks(b device.Buffer) ([]byte, error) {
	ranks := e.dev.Capabilities().Ranks
	if ranks == nil {
		all := make([]byte, b.Bytes())
		return all, e.dev.Read(all, b)
	}
	all := make([]byte, int64(ranks.Count)*b.Bytes())
	for rank := range ranks.Count {
		if err := ranks.Read(rank, all[int64(rank)*b.Bytes():][:b.Bytes()], b); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Outcome returns the KV pools without their trash pages and the sampled rows' logits, both of every rank, or
// embeddings, and the records without the step's number.
func (t *trial) Outcome() ([]byte, error) {
	var out []byte
	for _, kv := range t.e.memory.Pools() {
		page := kv.PageBytes()
		pages, err := t.e.readRanks(kv.Data.Slice(page, kv.Data.Bytes()-page))
		if err != nil {
			return nil, err
		}
		out = append(out, pages...)
	}
	samples := len(t.step().Samples)
	logits, err := t.logits(samples)
	if err != nil {
		return nil, err
	}
	out = append(out, logits...)
	for i := range samples {
		var r kernels.Record
		t.e.memory.Record(t.e.next-1, i, &r)
		out = fmt.Appendf(out, "%d %d %d %d %x %v", r.Slot, r.Generation, r.Count, r.Token, r.Logprob, r.Top)
	}
	return out, nil
}
