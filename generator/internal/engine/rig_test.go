package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// microConfig is the shape of a model small enough for the race detector.
func microConfig() model.Config {
	return model.Config{Name: "llama", Vocab: 96, Hidden: 32, Inner: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8,
		Context: 512, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
}

// randomTensors makes the tensors of a model, with values that depend on the name alone.
type randomTensors struct{ c model.Config }

func (r randomTensors) Tensor(name string) (weights.Tensor, error) {
	for _, s := range r.c.Tensors() {
		if s.Name == name {
			if r.c.Eagle != nil && name == "d2t" {
				return upperHalf(name, s.Shape[0], r.c.Eagle.Vocab), nil
			}
			switch {
			case r.c.Name == quantisedName:
				return randomBlocks(name, s.Shape), nil
			case r.c.Name == microscaledName && s.Kind == model.ExpertTensor:
				return microscaled(name, s.Shape), nil
			}
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

// upperHalf returns the differences of ids with which the upper half of n tokens are the last of vocab.
func upperHalf(name string, n, vocab int) weights.Tensor {
	data := make([]byte, 8*n)
	for i := n / 2; i < n; i++ {
		binary.LittleEndian.PutUint64(data[8*i:], uint64(vocab-n))
	}
	return weights.Tensor{Name: name, DType: weights.I64, Shape: []int{n}, Data: data}
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

// testEngine is an engine on the host device.
type testEngine struct {
	*Engine
	t       testing.TB
	h       *device.Host
	ended   chan error
	weights device.Live // the device's memory before the engine was made
}

// defaults returns options for microConfig.
func defaults() Options {
	return Options{Context: 512, MaxBatch: 32, MaxQueue: 64, Chunk: 32, PageTokens: 8, Pages: 512,
		MaxGraphs: 200, GraphMemory: 1 << 30}
}

// start runs an engine of the micro model until the test ends. wrap, if not nil, wraps its device.
func start(t *testing.T, o Options, wrap func(device.Device) device.Device, eos ...int32) *testEngine {
	t.Helper()
	return startOn(t, device.HostOptions{Workers: 2, GraphBytes: 1000}, o, wrap, eos...)
}

func startOn(t *testing.T, host device.HostOptions, o Options, wrap func(device.Device) device.Device,
	eos ...int32) *testEngine {
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
	b := &testEngine{Engine: e, t: t, h: h, ended: make(chan error, 1)}
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

// sink collects a request's tokens and its end.
type sink struct {
	mu     sync.Mutex
	tokens []Token
	finish Finish
	ended  chan struct{} // closed by Finish
	first  chan struct{} // closed by the first token
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

func (b *testEngine) submit(r Request) (*sink, Handle) {
	b.t.Helper()
	s := newSink()
	r.Sink, r.Received, r.Format = s, time.Now(), begun(b.t, r.Format)
	h, err := b.Submit(&r)
	if err != nil {
		b.t.Fatal(err)
	}
	return s, h
}

// completeStep completes the oldest step in flight of an engine that the test drives, as iterate does.
func (b *testEngine) completeStep() error {
	step, err := b.completeOldest()
	if err != nil {
		return err
	}
	return b.handOut(step)
}

// complete submits a request and waits until it has ended.
func (b *testEngine) complete(r Request) *sink {
	b.t.Helper()
	s, _ := b.submit(r)
	<-s.ended
	return s
}

// baseline waits until no request runs or waits and no page is in use.
func (b *testEngine) baseline() {
	b.t.Helper()
	for range 1000 {
		if s := b.Stats(); s.Requests.Running == 0 && s.Requests.Waiting == 0 && s.KV.Used == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("not everything was freed: %+v", b.Stats())
}

// tokens returns n random tokens of the micro model's vocabulary.
func tokens(r *rand.Rand, n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(r.IntN(96))
	}
	return t
}

// sampled samples with every filter on.
func sampled(seed uint64) Sampling {
	return Sampling{Temperature: 0.9, TopK: 30, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.2, Seed: seed, Logprobs: 3}
}

// besideOthers completes a request beside 31 random ones, and waits for all of them.
func (b *testEngine) besideOthers(r *rand.Rand, request Request) *sink {
	b.t.Helper()
	var others []*sink
	for i := range 31 {
		s, _ := b.submit(Request{Tokens: tokens(r, 1+r.IntN(90)), MaxTokens: 1 + r.IntN(80),
			Sampling: sampled(uint64(i))})
		others = append(others, s)
	}
	beside := b.complete(request)
	for _, s := range others {
		<-s.ended
	}
	return beside
}

func sameToken(a, b Token) bool {
	return a.ID == b.ID && a.Logprob == b.Logprob && a.Index == b.Index && slices.Equal(a.Top, b.Top)
}

// counting is a device that counts launches by kernel.
type counting struct {
	device.Device
	mu     sync.Mutex
	counts map[string]int
	err    error // if set, returned by every launch
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
