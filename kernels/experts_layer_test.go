package kernels

import (
	"errors"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// layer returns experts with a router over the same rows.
func (g *rig) layer() Experts {
	r := g.route(3, 6, 2)
	c := g.experts(r, F32, 0, true)
	r.X, r.Norm, r.Hidden = c.gateUp.X, c.gateUp.Norm, expertsHidden
	return Experts{Route: r.Route, GateUp: c.gateUp, Down: c.down}
}

// A layer's experts as one op leave what the three ops leave.
func TestExpertsAsOneOp(t *testing.T) {
	g := newRig(t, 1, 8)
	o := g.layer()
	before := slices.Clone(g.h.Float32(o.Route.X))
	g.launch(o)
	got, gates := slices.Clone(g.h.Float32(o.Route.X)), slices.Clone(g.h.Float32(o.GateUp.Out))
	copy(g.h.Float32(o.Route.X), before)
	g.launch(o.Route)
	g.launch(o.GateUp)
	g.launch(o.Down)
	if !slices.Equal(got, g.h.Float32(o.Route.X)) || !slices.Equal(gates, g.h.Float32(o.GateUp.Out)) ||
		slices.Equal(got, before) {
		t.Errorf("%v, wants %v", got, g.h.Float32(o.Route.X))
	}
}

func TestExpertsAsOneOpRefuse(t *testing.T) {
	o := newRig(t, 1, 8).layer()
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(o *Experts){
		"a router of fewer rows": func(o *Experts) { o.Route.T-- },
		"gates of fewer rows":    func(o *Experts) { o.GateUp.T-- },
		"another choice":         func(o *Experts) { o.Down.Chosen.Weights = o.Down.Chosen.IDs },
		"a narrower router":      func(o *Experts) { o.Route.Hidden -= 4 },
		"no router":              func(o *Experts) { o.Route.Router = device.Buffer{} },
	} {
		changed := o
		change(&changed)
		if err := changed.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
}
