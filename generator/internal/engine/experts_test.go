package engine

import (
	"errors"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// expertsConfig is nanoConfig with experts in the second of two layers, whose results are large enough that others are
// seen behind products that round activations.
func expertsConfig() model.Config {
	c := nanoConfig()
	c.Layers = 2
	c.Experts = &model.Experts{Count: 8, Used: 2, Inner: 8, Normalise: true, Scale: 16, Dense: []bool{true, false}}
	return c
}

// latentConfig is a model with latent attention, whose queries have a latent too, and with shared experts.
func latentConfig() model.Config {
	c := expertsConfig()
	c.Heads, c.HeadDim, c.Interleaved = 2, 10, true
	c.Latent = &model.Latent{Rank: 8, QueryRank: 6, Rope: 4, Nope: 6, Value: 5}
	c.Experts.Shared, c.Experts.Choice, c.Experts.Scoring = 4, true, kernels.Sigmoid
	return c
}

// expertLattice is lattice of a model with experts, whose passes run through wrap, if it is not nil.
func expertLattice(t *testing.T, wrap func(b *testEngine, s device.Stream) device.Stream) *testEngine {
	t.Helper()
	o := nano()
	o.Chunk, o.MaxBatch, o.Precapture, o.MaxGraphs, o.GraphMemory, o.Pages = 16, 8, nil, 200, 200_000, 128
	b, err := tryBuildModel(t, expertsConfig(), device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if wrap == nil {
		return b
	}
	if err := b.pool.Close(); err != nil {
		t.Fatal(err)
	}
	sched := b.sched
	b.pool = graphs.NewPool(graphs.Options{Identity: b.identity(), MaxGraphs: 200, Budget: 200_000,
		Pass: func(s device.Stream, k graphs.Key) error { return b.pass(wrap(b, s), k) }})
	b.sched = nil // the pass is being captured
	keys := []graphs.Key{graphs.Decode(4), graphs.Prefill(8)}
	if _, err := b.pool.Precapture(b.stream, keys, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	b.sched = sched
	return b
}

// Every graph of a model with experts gives the bits of the eager run over other tokens, and the readiness detector
// finds no fault in its passes.
func TestExpertsReplayEqualsEager(t *testing.T) {
	b := expertLattice(t, nil)
	err := b.Check(func(c Checked, err error) {
		if faults := c.Report.Faults(); len(faults) > 0 {
			t.Errorf("%s: faults %v", c.Report.Key, faults)
		}
		if !strings.Contains(c.Report.String(), "route") {
			t.Errorf("%s: no router in the pass:\n%s", c.Report.Key, c.Report)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// router is a stream that changes the routers that are launched on it.
type router struct {
	device.Stream
	change func(s device.Stream, r kernels.Route) error
}

func (r router) Launch(op device.Op) error {
	switch o := op.(type) {
	case kernels.Route:
		return r.change(r.Stream, o)
	case kernels.Experts:
		return errors.Join(r.change(r.Stream, o.Route), r.Stream.Launch(o.GateUp), r.Stream.Launch(o.Down))
	}
	return r.Stream.Launch(op)
}

// frozenRoute chooses the same experts for every row, as a graph would that has kept those of its capture.
type frozenRoute struct {
	Chosen kernels.Chosen
	weight float32
}

func (frozenRoute) Kernel() string { return "route" }
func (frozenRoute) Check() error   { return nil }
func (o frozenRoute) Host(h *device.Host) {
	for i := range h.Int32(o.Chosen.IDs) {
		h.Int32(o.Chosen.IDs)[i], h.Float32(o.Chosen.Weights)[i] = int32(i%o.Chosen.Used), o.weight
	}
}

// A graph that keeps the experts of its capture is found: a replay over other tokens has to route afresh.
func TestFrozenRoutingIsFound(t *testing.T) {
	for _, key := range []graphs.Key{graphs.Decode(4), graphs.Prefill(8)} {
		b := expertLattice(t, func(b *testEngine, s device.Stream) device.Stream {
			if b.sched != nil {
				return s
			}
			return router{s, func(s device.Stream, r kernels.Route) error { return s.Launch(frozenRoute{r.Chosen, r.Scale / 2}) }}
		})
		if _, err := b.checkKey(key); !errors.Is(err, graphs.ErrDiffers) {
			t.Errorf("%s: %v, wants ErrDiffers", key, err)
		}
	}
}

// What a pass must not do with a choice of experts is named by the readiness detector: to read their number on the
// host, to size a grid by it, and to allocate for each of them.
func TestReadinessNamesHostRouting(t *testing.T) {
	for name, plant := range map[string]struct {
		want   string
		change func(b *testEngine, s device.Stream, r kernels.Route) error
	}{
		"a count read on the host": {"route: device-to-host read", func(b *testEngine, s device.Stream,
			r kernels.Route) error {
			_, err := expertsInUse(b, s, r)
			return err
		}},
		"a grid sized by it": {"route: device-to-host read", func(b *testEngine, s device.Stream,
			r kernels.Route) error {
			n, err := expertsInUse(b, s, r)
			r.T = min(r.T, max(1, n)) // of a launch for each expert in use
			return errors.Join(err, s.Launch(r))
		}},
		"an allocation per expert": {"route: allocation", func(b *testEngine, s device.Stream, r kernels.Route) error {
			err := s.Launch(r)
			for range r.Chosen.Used {
				x, failed := b.h.Alloc(64)
				err = errors.Join(err, failed, b.h.Free(x))
			}
			return err
		}},
	} {
		b := expertLattice(t, nil)
		pass := func(s device.Stream, k graphs.Key) error {
			return b.pass(router{s, func(s device.Stream, r kernels.Route) error { return plant.change(b, s, r) }}, k)
		}
		report, err := graphs.Inspect(b.h, b.stream, pass, graphs.Decode(2))
		if err != nil {
			t.Fatal(err)
		}
		if faults := report.Faults(); !strings.Contains(strings.Join(faults, "\n"), plant.want) {
			t.Errorf("%s: %v, wants %q", name, faults, plant.want)
		}
	}
}

// expertsInUse launches a router and counts on the host the experts that its rows chose.
func expertsInUse(b *testEngine, s device.Stream, r kernels.Route) (n int, err error) {
	if err := errors.Join(s.Launch(r), s.Synchronize()); err != nil {
		return 0, err
	}
	raw := make([]byte, r.Chosen.IDs.Bytes())
	if err := b.h.Read(raw, r.Chosen.IDs); err != nil {
		return 0, err
	}
	used := map[byte]bool{}
	for i := 0; i < len(raw); i += 4 {
		used[raw[i]] = true
	}
	return len(used), nil
}

// A request to a model with experts gives the same tokens in any schedule.
func TestAnyScheduleGivesTheSameTokensOfExperts(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	askModel(t, expertsConfig(), r, 24, 14, 14).anySchedule(t, r, schedules()/4)
}
