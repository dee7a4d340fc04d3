package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// A request gives the same tokens and log-probabilities, bit for bit, alone and beside 31 others that come and go.
func TestResultDoesNotDependOnNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	request := Request{Tokens: tokens(r, 77), MaxTokens: 60, Sampling: sampled(7)}
	for _, multiple := range []int{0, 1, 8} { // of generated rows; 0: no step is mixed
		o := defaults()
		if multiple > 0 {
			o.MixedRows = mixedRows(o, multiple)
		}
		b := start(t, o, nil)
		alone := b.complete(request)
		beside := b.besideOthers(r, request)
		if !slices.EqualFunc(alone.tokens, beside.tokens, sameToken) {
			t.Errorf("alone:  %v\nbeside: %v", alone.tokens, beside.tokens)
		}
		b.baseline()
		if n := b.Stats().Steps.Mixed; n > 5 != (multiple > 0) {
			t.Errorf("%d steps were mixed", n)
		}
	}
}

func TestSeedRepeatsAndAnotherSeedDiffers(t *testing.T) {
	b := start(t, defaults(), nil)
	request := func(seed uint64) Request {
		return Request{Tokens: []int32{1, 2, 3}, MaxTokens: 40,
			Sampling: Sampling{Temperature: 1.5, TopP: 1, RepeatPenalty: 1, Seed: seed}}
	}
	one, two, other := b.complete(request(1)), b.complete(request(1)), b.complete(request(2))
	if !slices.EqualFunc(one.tokens, two.tokens, sameToken) {
		t.Error("one seed gave two completions")
	}
	if slices.EqualFunc(one.tokens, other.tokens, sameToken) {
		t.Error("two seeds gave one completion")
	}
}

// A step launches each op once, or once a layer, for any batch size.
func TestOneOpCallPerOpAndStep(t *testing.T) {
	c := &counting{counts: map[string]int{}}
	o := defaults()
	o.MaxGraphs = 0 // launches every step op by op
	b := start(t, o, func(d device.Device) device.Device { c.Device = d; return c })
	var sinks []*sink
	for range 20 {
		s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 50})
		sinks = append(sinks, s)
	}
	for _, s := range sinks {
		<-s.ended
	}
	b.baseline()
	const warm = 2 // steps of the start
	steps, layers := warm+int(b.Stats().Steps.Prefill+b.Stats().Steps.Decode), microConfig().Layers
	for kernel, want := range map[string]int{"stage": steps, "embed": steps, "qkv": layers * steps,
		"attend": layers * steps, "output": layers * steps, "gateup": layers * steps, "down": layers * steps} {
		if c.counts[kernel] != want {
			t.Errorf("%s was launched %d times in %d steps of %d layers, wants %d",
				kernel, c.counts[kernel], steps, layers, want)
		}
	}
	if n := c.counts["head"]; n > steps || n != c.counts["sample"] {
		t.Errorf("head was launched %d times, sample %d times, in %d steps", n, c.counts["sample"], steps)
	}
	if steps >= 20*50 {
		t.Errorf("%d steps for 20 requests of 50 tokens: they were not batched", steps)
	}
}

func TestPromptOf400TokensTakes13Chunks(t *testing.T) {
	b := start(t, defaults(), nil)
	s := b.complete(Request{Tokens: make([]int32, 400), MaxTokens: 1})
	b.baseline()
	if n := b.Stats().Steps.Prefill; n != 13 {
		t.Errorf("%d prefill steps of 32 tokens for 400, wants 13", n)
	}
	if g := s.finish.Graphs; g.Precaptured != 13 || s.finish.Usage.PromptTokens != 400 {
		t.Errorf("finish %+v", s.finish)
	}
}

func TestEndOfSequence(t *testing.T) {
	free := start(t, defaults(), nil).complete(Request{Tokens: []int32{5}, MaxTokens: 30})
	eos := free.tokens[10].ID
	at := slices.IndexFunc(free.tokens, func(t Token) bool { return t.ID == eos })
	b := start(t, defaults(), nil, eos)
	ended := b.complete(Request{Tokens: []int32{5}, MaxTokens: 30})
	f := ended.finish
	if f.Reason != protocol.FinishStop || len(ended.tokens) != at || f.Usage.CompletionTokens != at {
		t.Errorf("ended by %q after %d tokens, wants %q after %d", f.Reason, len(ended.tokens), protocol.FinishStop, at)
	}
	ignored := b.complete(Request{Tokens: []int32{5}, MaxTokens: 30, IgnoreEOS: true})
	if ignored.finish.Reason != protocol.FinishLength || len(ignored.tokens) != 30 {
		t.Errorf("with ignore_eos ended by %q after %d tokens", ignored.finish.Reason, len(ignored.tokens))
	}
}

func TestCompletionEndsWithTheContext(t *testing.T) {
	b := start(t, defaults(), nil)
	s := b.complete(Request{Tokens: make([]int32, 500), MaxTokens: 1000})
	if len(s.tokens) != 12 || s.finish.Reason != protocol.FinishLength {
		t.Errorf("%d tokens, %q; wants 12, length", len(s.tokens), s.finish.Reason)
	}
}

func TestCancelFreesAtOnce(t *testing.T) {
	o := defaults()
	o.MaxBatch = 2
	b := start(t, o, nil)
	var handles []Handle
	var sinks []*sink
	for range 5 { // three of them wait
		s, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 500})
		sinks, handles = append(sinks, s), append(handles, h)
	}
	<-sinks[0].first
	for _, h := range handles {
		b.Cancel(h)
		b.Cancel(h)
	}
	for i, s := range sinks {
		<-s.ended
		if s.finish.Reason != protocol.FinishCancelled {
			t.Errorf("request %d ended by %q", i, s.finish.Reason)
		}
	}
	b.baseline()
}

func TestBusyWhenTheQueueIsFull(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.MaxQueue = 1, 3
	b := start(t, o, nil)
	first, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511})
	<-first.first
	var queued []*sink
	for range 3 {
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1})
		queued = append(queued, s)
	}
	if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, Sink: newSink()}); !errors.Is(err, ErrBusy) {
		t.Fatalf("a fourth in the queue: %v, wants ErrBusy", err)
	}
	b.Cancel(h)
	for _, s := range queued {
		<-s.ended
	}
	b.baseline()
}

func TestOutOfBoundsRequestsAreRefused(t *testing.T) {
	b := start(t, defaults(), nil)
	for name, r := range map[string]Request{
		"no tokens":    {MaxTokens: 1},
		"too many":     {Tokens: make([]int32, 512), MaxTokens: 1},
		"no completed": {Tokens: []int32{1}},
	} {
		if _, err := b.Submit(&r); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %v, wants ErrTooLong", name, err)
		}
	}
}

func TestStop(t *testing.T) {
	b := start(t, defaults(), nil)
	cut, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511})
	<-cut.first
	b.Stop()
	if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1}); !errors.Is(err, ErrDraining) {
		t.Fatalf("after Stop: %v, wants ErrDraining", err)
	}
	<-cut.ended
	if !errors.Is(cut.finish.Err, ErrShutdown) {
		t.Errorf("the unfinished request ended with %v, wants ErrShutdown", cut.finish.Err)
	}
	b.baseline()
}

// If the device fails, every request ends with ErrDevice and Run returns the device's error.
func TestDeviceFailureReachesEveryRequest(t *testing.T) {
	c := &counting{counts: map[string]int{}}
	o := defaults()
	o.MaxBatch, o.MaxGraphs = 2, 0
	b := start(t, o, func(d device.Device) device.Device { c.Device = d; return c })
	var sinks []*sink
	for range 4 {
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511})
		sinks = append(sinks, s)
	}
	<-sinks[0].first
	c.mu.Lock()
	c.err = errors.New("sticky")
	c.mu.Unlock()
	for i, s := range sinks {
		<-s.ended
		if !errors.Is(s.finish.Err, ErrDevice) {
			t.Errorf("request %d ended with %v, wants ErrDevice", i, s.finish.Err)
		}
	}
	if err := <-b.ended; !errors.Is(err, c.err) {
		t.Errorf("Run returned %v", err)
	}
	b.ended <- nil // for the cleanup
	b.baseline()
}

// Sixteen requests share the pages of one longest sequence: all complete, each with the tokens that it gets alone.
func TestFewPagesManyClients(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var requests []Request
	for i := range 16 {
		requests = append(requests, Request{Tokens: tokens(r, 1+r.IntN(200)), MaxTokens: 1 + r.IntN(60),
			Sampling: sampled(uint64(i))})
	}
	wide, o := start(t, defaults(), nil), defaults()
	o.Pages = 64
	narrow := start(t, o, nil)
	var sinks []*sink
	for _, q := range requests {
		s, _ := narrow.submit(q)
		sinks = append(sinks, s)
	}
	for i, s := range sinks {
		<-s.ended
		if alone := wide.complete(requests[i]); !slices.EqualFunc(alone.tokens, s.tokens, sameToken) {
			t.Errorf("request %d: its tokens differ when pages are few", i)
		}
	}
	narrow.baseline()
}
