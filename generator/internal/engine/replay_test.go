package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels/device"
)

// lattice returns an engine of the nano model with the whole default lattice.
func lattice(t *testing.T) *testEngine {
	t.Helper()
	o := nano()
	o.Chunk, o.MaxBatch, o.Precapture, o.MaxGraphs, o.GraphMemory = 64, 32, nil, 200, 200_000
	o.Pages, o.MixedRows = 128, mixedRows(o, 4)
	b := built(t, device.HostOptions{}, o, nil)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b.returned()
	})
	return b
}

// Every graph of the default lattice gives the same bits as the eager run at the unpadded shape, over poisoned
// memory, and the readiness detector finds no fault in the pass.
func TestReplayEqualsEagerForEveryKey(t *testing.T) {
	b := lattice(t)
	var keys, verified, mixed int
	err := b.Check(func(c Checked, err error) {
		keys, verified = keys+1, verified+c.Verified
		ops := 2 + 5 + 2 // stage, embed; one layer; head, sample
		if c.Report.Key.HasPrompts() {
			ops++ // pick
		}
		mixed += c.Verified * int(c.Report.Key.Class/graphs.MixedClass)
		if faults := c.Report.Faults(); len(faults) > 0 || len(c.Report.Ops) != ops {
			t.Errorf("%s: %d ops, faults %v", c.Report.Key, len(c.Report.Ops), faults)
		}
	})
	want := len(graphs.Lattice(graphs.DefaultCounts(64), 64, 32)) + 4 + 15 // of several; mixed steps of 4, 8, 12, 16 and 24 rows
	if err != nil || keys != want || verified != 2*want-2 || mixed != 30 { // a shape of one token has no padded replay
		t.Errorf("%v after %d of %d keys, %d replays verified, %d of them mixed", err, keys, want, verified, mixed)
	}
}

// The comparison fails for a pass that depends on its padding, and for one that was captured in another shape than
// it is launched in.
func TestReplayThatDiffersIsFound(t *testing.T) {
	for name, pass := range map[string]func(b *testEngine, s device.Stream, k graphs.Key) error{
		"depends on its padding": func(b *testEngine, s device.Stream, k graphs.Key) error {
			if err := b.pass(s, k); err != nil {
				return err
			}
			return s.Launch(leakOp{b.memory.Logits(), k.Tokens()})
		},
		"captures less than it launches": func(b *testEngine, s device.Stream, k graphs.Key) error {
			if b.sched == nil && k.Tokens() > 1 { // during the capture
				k = graphs.Prefill(k.Tokens() - 1)
			}
			return b.pass(s, k)
		},
	} {
		b := lattice(t)
		sched := b.sched
		if err := b.pool.Close(); err != nil {
			t.Fatal(err)
		}
		b.pool = graphs.NewPool(graphs.Options{Identity: b.identity(), MaxGraphs: 200, Budget: 200_000,
			Pass: func(s device.Stream, k graphs.Key) error { return pass(b, s, k) }})
		b.sched = nil
		if _, err := b.pool.Precapture(b.stream, []graphs.Key{graphs.Decode(4)}, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		b.sched = sched
		if _, err := b.checkKey(graphs.Decode(4)); !errors.Is(err, graphs.ErrDiffers) {
			t.Errorf("a pass that %s: %v, wants ErrDiffers", name, err)
		}
	}
}

// leakOp adds the pass's number of rows to its first logit.
type leakOp struct {
	Logits device.Buffer
	Rows   int
}

func (leakOp) Kernel() string        { return "leak" }
func (leakOp) Check() error          { return nil }
func (o leakOp) Host(h *device.Host) { h.Float32(o.Logits)[0] += float32(o.Rows) }
