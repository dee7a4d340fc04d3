package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"reel/generator/internal/model"
	"reel/generator/internal/weights"
	"reel/kernels/device"
	"reel/protocol"
)

// microConfig is a model small enough for the race detector.
func microConfig() model.Config {
	return model.Config{Name: "llama", Vocab: 96, Hidden: 32, Inner: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8,
		Context: 512, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
}

// randomTensors makes up any tensor that is asked for, always the same.
type randomTensors struct{ c model.Config }

func (r randomTensors) Tensor(name string) (weights.Tensor, error) {
	for _, s := range r.c.Tensors() {
		if s.Name == name {
			return randomTensor(name, s.Shape), nil
		}
	}
	return weights.Tensor{}, weights.ErrMissing
}

func (r randomTensors) Names() (names []string) {
	for _, s := range r.c.Tensors() {
		names = append(names, s.Name)
	}
	return names
}

func randomTensor(name string, shape []int) weights.Tensor {
	var seed uint64 = 14695981039346656037
	for _, b := range []byte(name) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	r, n := rand.New(rand.NewPCG(seed, 0)), 1
	for _, d := range shape {
		n *= d
	}
	data := make([]byte, 2*n)
	for i := range n {
		data[2*i], data[2*i+1] = byte(r.Uint32()), byte(0x3d|r.Uint32()&0x80|r.Uint32()&1) // about ±0.03 to ±0.25
	}
	return weights.Tensor{Name: name, DType: weights.BF16, Shape: shape, Data: data}
}

// bench is an engine on the host that runs until the test ends.
type bench struct {
	*Engine
	t       *testing.T
	h       *device.Host
	ended   chan error
	weights device.Live // what was on the device before the engine
}

func defaults() Options {
	return Options{Context: 512, MaxBatch: 32, MaxQueue: 64, Chunk: 32, PageTokens: 8, Pages: 512, MaxGraphs: 200, GraphMemory: 1 << 30}
}

func start(t *testing.T, o Options, wrap func(device.Device) device.Device, eos ...int32) *bench {
	t.Helper()
	return startOn(t, device.HostOptions{Workers: 2, GraphBytes: 1000}, o, wrap, eos...)
}

func startOn(t *testing.T, host device.HostOptions, o Options, wrap func(device.Device) device.Device, eos ...int32) *bench {
	t.Helper()
	h := device.NewHost(host)
	c := microConfig()
	c.EOS = eos
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	var dev device.Device = h
	if wrap != nil {
		dev = wrap(h)
	}
	weights := h.Live()
	e, err := New(dev, m, o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Engine: e, t: t, h: h, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	t.Cleanup(func() {
		e.Stop()
		<-b.ended
		if left := h.Live(); left != weights {
			t.Errorf("the engine left %+v on the device, before it were %+v", left, weights)
		}
		h.Close()
	})
	return b
}

// sink gathers what comes of a request.
type sink struct {
	mu     sync.Mutex
	tokens []Token
	finish Finish
	ended  chan struct{}
	first  chan struct{}
}

func newSink() *sink { return &sink{ended: make(chan struct{}), first: make(chan struct{})} }

func (s *sink) Token(t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) == 0 {
		close(s.first)
	}
	s.tokens = append(s.tokens, t)
}

func (s *sink) Finish(f Finish) {
	s.finish = f
	close(s.ended)
}

func (b *bench) submit(r Request) (*sink, Handle) {
	b.t.Helper()
	s := newSink()
	r.Sink, r.Received = s, time.Now()
	h, err := b.Submit(&r)
	if err != nil {
		b.t.Fatal(err)
	}
	return s, h
}

func (b *bench) complete(r Request) *sink {
	b.t.Helper()
	s, _ := b.submit(r)
	<-s.ended
	return s
}

// baseline waits until nothing runs, and checks that nothing was kept.
func (b *bench) baseline() {
	b.t.Helper()
	for range 1000 {
		if s := b.Stats(); s.Requests.Running == 0 && s.Requests.Waiting == 0 && s.KV.Used == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("something was kept: %+v", b.Stats())
}

func tokens(r *rand.Rand, n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(r.IntN(96))
	}
	return t
}

func sampled(seed uint64) Sampling {
	return Sampling{Temperature: 0.9, TopK: 30, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.2, Seed: seed, Logprobs: 3}
}

// besideOthers completes a request beside 31 random ones, and waits for all.
func (b *bench) besideOthers(r *rand.Rand, request Request) *sink {
	b.t.Helper()
	var others []*sink
	for i := range 31 {
		s, _ := b.submit(Request{Tokens: tokens(r, 1+r.IntN(90)), MaxTokens: 1 + r.IntN(80), Sampling: sampled(uint64(i))})
		others = append(others, s)
	}
	beside := b.complete(request)
	for _, s := range others {
		<-s.ended
	}
	return beside
}

// The same request gives the same tokens and the same log-probabilities, bit
// for bit, alone and beside 31 others that come and go.
func TestResultDoesNotDependOnNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	request := Request{Tokens: tokens(r, 77), MaxTokens: 60, Sampling: sampled(7)}
	b := start(t, defaults(), nil)
	alone := b.complete(request)
	beside := b.besideOthers(r, request)
	if !slices.EqualFunc(alone.tokens, beside.tokens, sameToken) {
		t.Errorf("alone:  %v\nbeside: %v", alone.tokens, beside.tokens)
	}
	b.baseline()
}

func sameToken(a, b Token) bool {
	return a.ID == b.ID && a.Logprob == b.Logprob && a.Index == b.Index && slices.Equal(a.Top, b.Top)
}

func TestSeedRepeatsAndAnotherSeedDiffers(t *testing.T) {
	b := start(t, defaults(), nil)
	request := func(seed uint64) Request {
		return Request{Tokens: []int32{1, 2, 3}, MaxTokens: 40, Sampling: Sampling{Temperature: 1.5, TopP: 1, RepeatPenalty: 1, Seed: seed}}
	}
	one, two, other := b.complete(request(1)), b.complete(request(1)), b.complete(request(2))
	if !slices.EqualFunc(one.tokens, two.tokens, sameToken) {
		t.Error("one seed gave two completions")
	}
	if slices.EqualFunc(one.tokens, other.tokens, sameToken) {
		t.Error("two seeds gave one completion")
	}
}

// counting is a device whose streams count launches by kernel.
type counting struct {
	device.Device
	mu     sync.Mutex
	counts map[string]int
	err    error // returned by every launch from the moment it is set
}

func (c *counting) NewStream() (device.Stream, error) {
	s, err := c.Device.NewStream()
	return &countingStream{s, c}, err
}

type countingStream struct {
	device.Stream
	c *counting
}

func (s *countingStream) Launch(op device.Op) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.err != nil {
		return s.c.err
	}
	s.c.counts[op.Kernel()]++
	return s.Stream.Launch(op)
}

// One call of each op and step (of each layer's op and layer), whatever the batch.
func TestOneOpCallPerOpAndStep(t *testing.T) {
	c := &counting{counts: map[string]int{}}
	o := defaults()
	o.MaxGraphs = 0 // every step op by op
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
	const warm = 2 // steps at start
	steps, layers := warm+int(b.Stats().Steps.Prefill+b.Stats().Steps.Decode), microConfig().Layers
	for kernel, want := range map[string]int{"stage": steps, "embed": steps, "qkv": layers * steps, "attend": layers * steps,
		"output": layers * steps, "gateup": layers * steps, "down": layers * steps} {
		if c.counts[kernel] != want {
			t.Errorf("%s was launched %d times in %d steps of %d layers, wants %d", kernel, c.counts[kernel], steps, layers, want)
		}
	}
	if n := c.counts["head"]; n > steps || n != c.counts["sample"] {
		t.Errorf("head was launched %d times, sample %d times, in %d steps", n, c.counts["sample"], steps)
	}
	if steps >= 20*50 {
		t.Errorf("%d steps for 20 requests of 50 tokens: they were not batched", steps)
	}
}

func TestPromptOf400TokensTakesItsChunks(t *testing.T) {
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
	if ended.finish.Reason != protocol.FinishStop || len(ended.tokens) != at || ended.finish.Usage.CompletionTokens != at {
		t.Errorf("ended by %q after %d tokens, wants %q after %d", ended.finish.Reason, len(ended.tokens), protocol.FinishStop, at)
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
		t.Errorf("what was cut short ended with %v, wants ErrShutdown", cut.finish.Err)
	}
	b.baseline()
}

// A device that fails ends every request with a typed error, and Run with it.
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
	b.ended <- nil // for the clean-up
	b.baseline()
}

// Sixteen clients over the pages of one longest sequence: all complete, each
// with the tokens it gets alone.
func TestFewPagesManyClients(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var requests []Request
	for i := range 16 {
		requests = append(requests, Request{Tokens: tokens(r, 1+r.IntN(200)), MaxTokens: 1 + r.IntN(60), Sampling: sampled(uint64(i))})
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
			t.Errorf("request %d: its tokens differ where pages are few", i)
		}
	}
	narrow.baseline()
}
