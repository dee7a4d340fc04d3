package server

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// fakeEngine is an engine with known completions: the prompt's tokens over and over. One
// goroutine gives every sequence a token in each step, as a batch does. It waits until
// allow permits a step.
type fakeEngine struct {
	mu       sync.Mutex
	wake     sync.Cond
	last     engine.Handle
	live     map[engine.Handle]*fakeSequence
	steps    int // steps that are still allowed; negative: any number
	stopped  bool
	refuse   error // returned by Submit
	submits  int
	foreseen int // of these, while they were expected
	canceled int
	drops    int              // of the cache
	scope    string           // of the cache
	user     engine.User      // of the last request
	sampling engine.Sampling  // of the last request
	cache    engine.CacheMode // of the last request
	cached   int              // cached tokens of every request
	drafts   int              // DraftTokens of the last request
	foretold []int32          // Prediction of the last request
	drafter  string           // of status
	drafted  bool             // every second token had been guessed
	rereads  []reread         // in order
	embeds   bool             // it is a model's for embeddings
	tokens   []int32          // of the last request
	expected atomic.Int32     // calls of Expect
	reading  atomic.Int32     // of these, without EndExpect
	done     chan struct{}
}

type fakeSequence struct {
	*engine.Request
	made int
}

func newFakeEngine() *fakeEngine {
	e := &fakeEngine{live: map[engine.Handle]*fakeSequence{}, steps: -1, done: make(chan struct{})}
	e.wake.L = &e.mu
	go e.run()
	return e
}

func (e *fakeEngine) Submit(r *engine.Request) (engine.Handle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.submits++
	if e.reading.Load() > 0 {
		e.foreseen++
	}
	e.user, e.sampling, e.cache = r.User, r.Sampling, r.Cache
	e.drafts, e.foretold, e.tokens = r.DraftTokens, r.Prediction, r.Tokens
	if e.refuse != nil {
		return 0, e.refuse
	}
	e.last++
	e.live[e.last] = &fakeSequence{Request: r}
	e.wake.Broadcast()
	return e.last, nil
}

// foreseenSubmits returns how many requests came while they were expected.
func (e *fakeEngine) foreseenSubmits() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.foreseen
}

// refuseNext lets Submit return err from now on.
func (e *fakeEngine) refuseNext(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = err
}

func (e *fakeEngine) Cancel(h engine.Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[h] != nil {
		e.canceled++
		e.finish(h, engine.Finish{Reason: protocol.FinishCancelled})
	}
}

func (e *fakeEngine) Stats() engine.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return engine.Stats{Requests: protocol.Requests{Running: len(e.live)}, KV: protocol.KV{Pages: 8},
		Cache: protocol.Cache{Scope: e.scope}, Drafts: protocol.Drafts{Drafter: e.drafter, Tokens: 7}}
}

func (e *fakeEngine) Cached(user engine.User, drop bool) (protocol.Cached, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return protocol.Cached{}, e.refuse
	}
	e.user = user
	c := protocol.Cached{Scope: e.scope, PageTokens: 16,
		Tiers: []protocol.CacheTier{{Tier: protocol.TierDevice, Pages: 5}}}
	if drop {
		e.drops++
		c.Dropped, c.Tiers[0].Pages = 4, 1
	}
	return c, nil
}

// dropped returns how often the cache was dropped.
func (e *fakeEngine) dropped() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drops
}

// asker returns the user of the last request.
func (e *fakeEngine) asker() engine.User {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.user
}

// prompt returns the tokens of the last request.
func (e *fakeEngine) prompt() []int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokens
}

// cacheMode returns the use of the cache of the last request.
func (e *fakeEngine) cacheMode() engine.CacheMode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cache
}

// reread is a call of Reread.
type reread struct {
	user   engine.User
	tokens string
}

func (e *fakeEngine) Reread(user engine.User, tokens []int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := make([]byte, len(tokens))
	for i, t := range tokens {
		text[i] = byte(t)
	}
	e.rereads = append(e.rereads, reread{user, string(text)})
}

func (e *fakeEngine) Expect()    { e.expected.Add(1); e.reading.Add(1) }
func (e *fakeEngine) EndExpect() { e.reading.Add(-1) }

// allow lets the engine run n more steps; negative: any number.
func (e *fakeEngine) allow(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = n
	e.wake.Broadcast()
}

// stop ends the remaining sequences with err.
func (e *fakeEngine) stop(err error) {
	e.mu.Lock()
	for h := range e.live {
		e.finish(h, engine.Finish{Err: err})
	}
	e.stopped = true
	e.wake.Broadcast()
	e.mu.Unlock()
	<-e.done
}

func (e *fakeEngine) counts() (live, submits int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live), e.submits
}

// lastSampling returns the sampling of the last request.
func (e *fakeEngine) lastSampling() engine.Sampling {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sampling
}

func (e *fakeEngine) run() {
	defer close(e.done)
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.stopped {
		if len(e.live) == 0 || e.steps == 0 {
			e.wake.Wait()
			continue
		}
		e.steps--
		for h, s := range e.live {
			e.step(h, s)
		}
		e.mu.Unlock() // lets other calls in between steps
		e.mu.Lock()
	}
}

func (e *fakeEngine) step(h engine.Handle, s *fakeSequence) {
	if e.embeds {
		copy(s.Vector, []float32{float32(len(s.Tokens)), float32(s.Tokens[0]), 0, 3})
		e.finish(h, engine.Finish{Reason: protocol.FinishStop})
		return
	}
	t := engine.Token{Index: s.made, ID: s.Tokens[s.made%len(s.Tokens)], Logprob: -0.5 - float32(s.made),
		Drafted: e.drafted && s.made%2 == 1}
	for i := range s.Sampling.Logprobs {
		t.Top = append(t.Top, engine.TopToken{ID: int32('a' + i), Logprob: -float32(s.made + i)})
	}
	s.Sink.Token(t)
	if s.made++; s.made >= s.MaxTokens {
		e.finish(h, engine.Finish{Reason: protocol.FinishLength})
	}
}

func (e *fakeEngine) finish(h engine.Handle, f engine.Finish) {
	s := e.live[h]
	delete(e.live, h)
	if s.Format != nil {
		s.Format.Close()
	}
	f.Usage = protocol.Usage{PromptTokens: len(s.Tokens), CompletionTokens: s.made, CachedTokens: e.cached}
	if e.drafted {
		f.Usage.DraftedTokens, f.Usage.AcceptedTokens = 3*s.made, s.made/2
	}
	f.Timing = protocol.Timing{TotalMS: 1}
	f.Graphs = protocol.Graphs{Eager: s.made}
	s.Sink.Finish(f)
}

// byteTokenizer has a token for every byte. A text that begins with "!" cannot be
// tokenized; the text "?" has no tokens; for one that ends in "[TOLD]" the error is the client's.
// It puts "=" in front of a text without post-processor, and "#" in place of data.
type byteTokenizer struct {
	calls   atomic.Int64
	gate    chan struct{} // EncodeMarked receives from it, unless it is nil
	running atomic.Int64  // calls of EncodeMarked
	most    atomic.Int64  // largest value of running
}

func (b *byteTokenizer) EncodeMarked(t marked.Text, postProcessor bool) ([]int32, error) {
	text := ""
	if !postProcessor {
		text = "="
	}
	for _, p := range t {
		if p.Data {
			p.Text = strings.Repeat("#", len(p.Text))
		}
		text += p.Text
	}
	b.calls.Add(1)
	now := b.running.Add(1)
	for most := b.most.Load(); now > most && !b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	defer b.running.Add(-1)
	if b.gate != nil {
		<-b.gate
	}
	switch {
	case text[:1] == "!":
		return nil, errors.New("no such character")
	case strings.HasSuffix(text, "[TOLD]"):
		return nil, protocol.Errorf(protocol.CodeBadRequest, "send tokens", "there is no tokenizer")
	case text == "?":
		return nil, nil
	case strings.HasSuffix(text, "[PAD]"): // an added token without a row in the embedding
		return []int32{'a', testVocab}, nil
	}
	tokens := make([]int32, len(text))
	for i := range len(text) {
		tokens[i] = int32(text[i])
	}
	return tokens, nil
}

func (b *byteTokenizer) TokenText(id int32) string { return string(id) }
func (b *byteTokenizer) MaxTokenBytes() int        { return 2 }

// byteDecoder decodes byteTokenizer's tokens.
type byteDecoder struct{ held []byte }

func (d *byteDecoder) Push(id int32) string {
	d.held = append(d.held, byte(id))
	if !utf8.FullRune(d.held) {
		return ""
	}
	text := strings.ToValidUTF8(string(d.held), string(utf8.RuneError))
	d.held = d.held[:0]
	return text
}

func (d *byteDecoder) Held() int { return len(d.held) }

func (d *byteDecoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = nil
	return string(utf8.RuneError)
}
