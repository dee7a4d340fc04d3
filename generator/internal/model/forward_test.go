package model_test

import (
	"testing"

	"reel/generator/internal/model"
	"reel/kernels"
	"reel/kernels/device"
)

// launches is a stream that keeps what is launched on it.
type launches struct {
	device.Stream
	ops []device.Op
}

func (l *launches) Launch(op device.Op) error {
	l.ops = append(l.ops, op)
	return nil
}

// Each attention comes right after the QKV of its rows and layer, and is told so for
// generated rows alone. Where heads want more than RoPE, it has of these the Turn that QKV
// leaves to it.
func TestAttentionIsToldThatItFollowsQKV(t *testing.T) {
	h, m := embedded(t)
	followsQKV(t, h, m)
	for _, name := range families {
		c, w := checkpoint(t, name)
		m, err := model.Load(h, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		followsQKV(t, h, m)
		if err := m.Free(h); err != nil {
			t.Error(err)
		}
	}
}

func followsQKV(t *testing.T, h device.Device, m *model.Model) {
	t.Helper()
	lane, err := m.NewLane(h, model.Geometry{MaxRows: 8, MaxBatch: 8, Context: m.Config.Context, PageTokens: 16, Pages: m.Config.Context / 16, RingSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lane.Free(h); err != nil {
			t.Error(err)
		}
	})
	for _, sh := range []model.Shape{{Rows: 1, Samples: 1}, {Rows: 8, Samples: 8}, {Rows: 1, Prefill: true, Samples: 1}, {Rows: 8, Prefill: true}} {
		var l launches
		if err := m.Forward(&l, lane, sh); err != nil {
			t.Fatal(err)
		}
		found := 0
		for i, op := range l.ops {
			a, ok := op.(kernels.Attend)
			if !ok {
				continue
			}
			found++
			if !a.AfterQKV {
				t.Errorf("%+v: attention waits for its QKV before it reads", sh)
			}
			if apart := m.Config.Bias || m.Config.HeadNorms; a.Turn.IsZero() != (sh.Prefill || !apart) {
				t.Errorf("%+v: attention turns its rows: %t", sh, !a.Turn.IsZero())
			}
			q, ok := l.ops[i-1].(kernels.QKV)
			if !ok || q.T != a.T || q.Rows != a.Rows || q.KV != a.KV || q.Layer != a.Layer || q.Out != a.Q || q.Prefill != a.Prefill || q.Unturned && q.Turn() != a.Turn || q.Unturned == a.Turn.IsZero() {
				t.Errorf("%+v: attention of layer %d follows %s, wants its QKV", sh, a.Layer, l.ops[i-1].Kernel())
			}
		}
		want := m.Config.Layers
		if sh.Samples == 0 { // nothing goes on from the last layer's
			want--
		}
		if found != want {
			t.Errorf("%+v: %d attentions, wants %d", sh, found, want)
		}
	}
}
