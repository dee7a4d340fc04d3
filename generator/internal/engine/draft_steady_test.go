package engine

import (
	"os"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels/device"
)

// steadyCalls runs two long requests, watches the engine's thread over 300 tokens of one of them, and returns the
// calls of the device meanwhile, by kind. The thread must allocate nothing.
func steadyCalls(t *testing.T, h *device.Host, m *model.Model, o Options) (calls [64]int, d draftCounts) {
	t.Helper()
	e, err := New(h, m, o)
	if err != nil {
		t.Fatal(err)
	}
	b := &testEngine{Engine: e, t: t, h: h, ended: make(chan error, 1)}
	var keys []graphs.Key // else steps of two sequences run op by op: no roller is beside them
	for queries := 1 + o.DraftTokens; queries > 1; queries-- {
		keys = append(keys, graphs.VerifyStep(2, queries))
	}
	if _, err := b.pool.Precapture(b.stream, keys, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	b.run()
	w := &watcher{from: 50, to: 350, ended: make(chan struct{}), h: h}
	w.trace = func(c device.Call) { w.calls[c.Kind]++ }
	for i, sink := range []Sink{&watcher{from: -1, to: -1, ended: make(chan struct{})}, w} {
		r := Request{Tokens: []int32{1, 2}, MaxTokens: 450, IgnoreEOS: true, Sink: sink, DraftTokens: o.DraftTokens,
			Sampling: Sampling{Temperature: 0.3, TopP: 1, RepeatPenalty: 1, Seed: uint64(i)}}
		if _, err := b.Submit(&r); err != nil {
			t.Fatal(err)
		}
	}
	<-w.ended
	b.Stop()
	if err := b.wait(); err != nil {
		t.Error(err)
	}
	if w.objects != 0 {
		t.Errorf("%v, %d drafts at most: %d objects in 300 tokens", o.Draft, o.DraftTokens, w.objects)
	}
	return w.calls, b.drafted
}

// With drafts the engine's thread allocates nothing either, and each step makes the calls of the device that a step
// without them makes: verify steps are replayed too, nothing is copied, and nothing more is waited for.
func TestSteadyStateWithDrafts(t *testing.T) {
	c := nanoConfig()
	c.Context = 500
	plain := nano()
	plain.Context, plain.Pages, plain.Chunk, plain.NoRoller = c.Context, 2*c.Context/plain.PageTokens, 16, true
	plain.MaxGraphs, plain.GraphMemory = 40, 40_000
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	guesser, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	headConfig := eagleConfigs(c)[1]
	head, err := model.Load(h, headConfig, randomTensors{headConfig}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	without, _ := steadyCalls(t, h, m, plain)
	for name, change := range map[string]func(o *Options){
		"lookup":              func(o *Options) { o.Draft, o.planDrafts = DraftLookup, inTurn() },
		"a model, the policy": func(o *Options) { o.Draft, o.DraftModel = DraftModel, guesser },
		"a head, the policy":  func(o *Options) { o.Draft, o.DraftModel, o.DraftWindow = DraftModel, head, 20 },
		"lookup, the policy":  func(o *Options) { o.Draft = DraftLookup },
		"a model":             func(o *Options) { o.Draft, o.DraftModel, o.planDrafts = DraftModel, guesser, inTurn() },
	} {
		if os.Getenv("REEL_LONG") == "" && (name == "a model" || name == "lookup, the policy") {
			continue
		}
		o := plain
		o.DraftTokens = 5
		change(&o)
		calls, counts := steadyCalls(t, h, m, o)
		steps, plainSteps := calls[device.CallReplay], without[device.CallReplay]
		for kind := range calls {
			if device.CallKind(kind) != device.CallHostRead && calls[kind]*plainSteps != without[kind]*steps {
				t.Errorf("%s: %d steps make %d calls of kind %v, %d without drafts %d", name, steps, calls[kind],
					device.CallKind(kind), plainSteps, without[kind])
			}
		}
		s := counts.status(o)
		if d := s.Total(); o.planDrafts != nil && (d.Accepted == 0 || steps >= plainSteps) || steps == 0 {
			t.Errorf("%s: %d steps, without drafts %d; %+v", name, steps, plainSteps, d)
		}
	}
}
