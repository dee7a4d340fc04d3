package assembly

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// collected is a completion as its sink received it.
type collected struct {
	mu     sync.Mutex
	tokens []int32
	ended  chan engine.Finish
}

func (c *collected) Token(t engine.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = append(c.tokens, t.ID)
}
func (c *collected) Finish(f engine.Finish) { c.ended <- f }

// complete asks for n greedy tokens after a prompt of that many tokens.
func complete(t *testing.T, e *engine.Engine, prompt, n int) (*collected, error) {
	t.Helper()
	c := &collected{ended: make(chan engine.Finish, 1)}
	tokens := make([]int32, prompt)
	for i := range tokens {
		tokens[i] = int32(2 + (7*i+prompt)%100)
	}
	_, err := e.Submit(&engine.Request{Tokens: tokens, MaxTokens: n, IgnoreEOS: true,
		Sampling: engine.Sampling{TopP: 1, RepeatPenalty: 1}, Sink: c})
	return c, err
}

// await waits for the end of c, which must have n tokens.
func (c *collected) await(t *testing.T, n int) string {
	t.Helper()
	select {
	case f := <-c.ended:
		if f.Reason != protocol.FinishLength || len(c.tokens) != n {
			t.Errorf("%d of %d tokens, %+v", len(c.tokens), n, f)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no end")
	}
	return fmt.Sprint(c.tokens)
}

// loadOften loads a model on h, generates and unloads, n times. After the first tenth, device
// memory as counted by taken, resident memory and open files may not grow.
func loadOften(t *testing.T, h hardware.Hardware, n int, taken func() int64) {
	t.Helper()
	var before, rss int64
	var files int
	for i := range n {
		s, err := openSource(os.DirFS("../model/testdata/qwen3"))
		if err != nil {
			t.Fatal(err)
		}
		budget, err := h.Budget(plan.UseOf(s.tensors))
		if err != nil {
			t.Fatal(err)
		}
		_, opts, err := plan.Planner{Config: s.config, Profile: h.Profile,
			Options: config.Options{MaxBatch: 2, MaxSeqLen: 128, Precapture: []int{4}, MaxGraphs: 8}}.Plan(budget.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		s.config.Context = opts.Context
		m, err := s.load(h, s.config, true, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(h.Device, m, opts)
		if err != nil {
			t.Fatal(err)
		}
		generateOnce(t, e)
		if err := errors.Join(m.Free(h), s.tensors.Close()); err != nil {
			t.Fatal(err)
		}
		if i == n/10 {
			before, rss, files = taken(), hardware.HostMachine().MemoryUsed, openFiles(t)
		}
	}
	grown, resident := taken()-before, hardware.HostMachine().MemoryUsed-rss
	t.Logf("%d loads: device memory grew by %d bytes, resident memory by %d", n, grown, resident)
	if grown > 0 || resident > 16<<20 || openFiles(t) > files {
		t.Errorf("device memory grew by %d bytes, resident memory by %d, open files from %d to %d", grown, resident,
			files, openFiles(t))
	}
}

func generateOnce(t *testing.T, e *engine.Engine) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	c, err := complete(t, e, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	c.await(t, 4)
	e.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Loading, generating and unloading 200 times leaks nothing.
func TestLoads200Times(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 20
	}
	host := device.NewHost(device.HostOptions{Workers: 2})
	defer host.Close()
	h := hardware.Hardware{Device: host, Profile: plan.HostProfile,
		Available: func() (int64, error) { return 1 << 30, nil }}
	loadOften(t, h, n, func() int64 { return host.Live().Bytes })
	if live := host.Live(); live != (device.Live{}) {
		t.Errorf("%+v are left", live)
	}
}

// A running engine whose device has no memory for another graph goes on without it: the tokens
// stay the same, and requests beyond its capacity are refused with a typed error.
func TestUnderBallast(t *testing.T) {
	const limit = 64 << 20
	host := device.NewHost(device.HostOptions{Workers: 2, Limit: limit, GraphBytes: 1 << 20})
	defer host.Close()
	h := hardware.Hardware{Device: host, Profile: plan.HostProfile,
		Available: func() (int64, error) { return 16 << 20, nil }}
	l, err := prepareOn(func(config.Options) (hardware.Hardware, error) { return h, nil },
		config.Options{Model: "../model/testdata/qwen3", MaxBatch: 2, MaxSeqLen: 256, Precapture: []int{},
			MaxGraphs: 64, GraphMemory: 1 << 30}, func(float64, string) {})
	if err == nil {
		t.Fatal("a plan with more memory for graphs than there is")
	}
	h.Available = func() (int64, error) { return 2 << 30, nil }
	l, err = prepareOn(func(config.Options) (hardware.Hardware, error) { return h, nil },
		config.Options{Model: "../model/testdata/qwen3", MaxBatch: 2, MaxSeqLen: 256, Precapture: []int{},
			MaxGraphs: 64, GraphMemory: 1 << 30}, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	l.EngineOptions.CacheScope = engine.ScopeOff // prompts that come again keep their shapes
	e, err := engine.New(host, l.Model, l.EngineOptions)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	want := map[int]string{}
	for _, leave := range []int64{16 << 20, 4 << 20, 1 << 19} {
		b, err := host.Alloc(limit - host.Live().Bytes - leave)
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; {
			promptsOf(t, e, want)
			// The roller captures in the background.
			if leave > 1<<20 || e.Stats().Graphs.Failed > 0 || time.Now().After(end) {
				break
			}
		}
		if err := host.Free(b); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Stats().Graphs; s.Failed == 0 || s.Eager+s.Padded == 0 {
		t.Errorf("no graph failed for want of memory: %+v", s)
	}
	shed(t, e)
	e.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// promptsOf completes prompts of many lengths, each three times, because a shape is captured
// after two misses. The tokens must equal those in want, if it has any.
func promptsOf(t *testing.T, e *engine.Engine, want map[int]string) {
	t.Helper()
	for prompt := 1; prompt < 60; prompt += 3 {
		for range 3 {
			c, err := complete(t, e, prompt, 3)
			if err != nil {
				t.Fatal(err)
			}
			got := c.await(t, 3)
			if w, ok := want[prompt]; ok && w != got {
				t.Errorf("prompt of %d tokens: %s, before %s", prompt, got, w)
			}
			want[prompt] = got
		}
	}
}

// shed sends more requests than the engine accepts.
func shed(t *testing.T, e *engine.Engine) {
	t.Helper()
	busy := 0
	for range protocol.MaxQueue + 20 {
		if _, err := complete(t, e, 5, 50); errors.Is(err, engine.ErrBusy) {
			busy++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if busy == 0 {
		t.Error("nothing was shed")
	}
}

// Every family, served from its files, gives the greedy tokens of transformers. Weights in bfloat16 take rounded
// activations, with which a row may choose other experts than in float32: models with experts are served in float32.
func TestFamiliesAreServed(t *testing.T) {
	list, err := os.ReadDir("../model/testdata")
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for _, dir := range list {
		if !dir.IsDir() || dir.Name() == "eagle" || dir.Name() == "qwen3-embedding" { // these draw no tokens
			continue
		}
		served++
		path := filepath.Join("../model/testdata", dir.Name())
		if hasExperts(t, path) {
			path = inFloat32(t, path)
		}
		l, err := Prepare(config.Options{Device: "host", Model: path, MaxBatch: 4, MaxGraphs: 8},
			func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(l.Hardware.Device, l.Model, l.EngineOptions)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run() }()
		serveGolden(t, e, path)
		e.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if served < 27 {
		t.Errorf("%d families", served)
	}
}

// serveGolden completes all prompts of a checkpoint's golden.json at once.
func serveGolden(t *testing.T, e *engine.Engine, path string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Tokens, Greedy []int32 }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	running := make([]*collected, len(all))
	for i, g := range all {
		running[i] = &collected{ended: make(chan engine.Finish, 1)}
		if _, err := e.Submit(&engine.Request{Tokens: g.Tokens, MaxTokens: len(g.Greedy), IgnoreEOS: true,
			Sampling: engine.Sampling{TopP: 1, RepeatPenalty: 1}, Sink: running[i]}); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range all {
		if got := running[i].await(t, len(g.Greedy)); got != fmt.Sprint(g.Greedy) {
			t.Errorf("%s, %d tokens: %s, transformers has %v", path, len(g.Tokens), got, g.Greedy)
		}
	}
}
