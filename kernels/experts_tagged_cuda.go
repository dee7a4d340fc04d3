//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// tagged launches the three kernels of one row whose values are tagged.
func (o Experts) tagged(q *cuda.Queue) error {
	route, err := o.Route.args(q)
	if err != nil {
		return err
	}
	return inTurn(q, func(q *cuda.Queue) error { return o.taggedLogits(q, route) },
		func(q *cuda.Queue) error { return o.taggedGates(q, route) }, o.taggedDown)
}

// tags returns the tags of one of the kernels. All but those of the residual stream have the number of what the layer
// gives.
func (o Experts) tags(q *cuda.Queue, in, out device.Buffer) tagsArgs {
	t := o.Tags
	if t.In, t.Out = in, out; in != o.Tags.In {
		t.Taken = t.Given
	}
	t.ForCodes = o.Down.Down.DType.Quantised() // of the gates' results
	return t.args(q)
}

func (o Experts) taggedLogits(q *cuda.Queue, route routeArgs) error {
	return cuda.Launch(q, "reel_route1_tagged", cuda.Grid{X: splitsOf(o.Route.Chosen.Experts, routeWarps),
		Threads: routeWarps * 32, Shared: 4 * o.Route.Hidden, Dependent: tune.DependentLaunch},
		taggedRouteArgs{of: route, tags: o.tags(q, o.Tags.In, o.Between.Logits)})
}

// taggedGates launches blocks that take units of all the row's experts in turn: two on an SM over bfloat16, over codes
// one, which has a ring.
func (o Experts) taggedGates(q *cuda.Queue, route routeArgs) error {
	d, hidden, units := o.GateUp.Gate.DType, o.Route.Hidden, tilesOf(o.GateUp.inner())*o.Route.Chosen.Used
	args, tags := o.GateUp.args(q), o.tags(q, o.Tags.In, o.Between.Inner)
	args.in.n = 1
	choice := choiceArgs{of: route, logits: q.Address(o.Between.Logits), choice: q.Address(o.Between.Choice)}
	name, g := "reel_expert_gateup"+formats[d].kernel+"_one_tagged", cuda.Grid{Dependent: tune.DependentLaunch}
	if d == BF16 {
		g.X, g.Threads, g.Shared = min(units, 2*q.SMs(), tune.MaxPersistentBlocks), gemv.threads, gemvRowBytes(hidden, true)
		return cuda.Launch(q, name, g, taggedGatesArgs[expertGateUpArgs]{op: args, tags: tags, choice: choice})
	}
	stages, shared := expertRing(d, hidden, 1, 2)
	g.X, g.Threads, g.Shared = min(units, q.SMs(), tune.MaxPersistentBlocks), expertRingThreads, shared
	ring := codesArgs[expertGateUpArgs]{op: args, units: int32(units), atOnce: 1, stages: int32(stages)}
	return cuda.Launch(q, name, g, taggedGatesArgs[codesArgs[expertGateUpArgs]]{op: ring, tags: tags, choice: choice})
}

func (o Experts) taggedDown(q *cuda.Queue) error {
	args, tags := o.Down.args(q), o.tags(q, o.Between.Inner, o.Tags.Out)
	choice, experts := q.Address(o.Between.Choice), int32(o.Route.Chosen.Experts)
	if stages, g := o.Down.ringGrid(); stages > 0 {
		return launchDownOfOne(q, o.Down, "_ring_one_tagged", g, taggedDownArgs[codesArgs[expertDownArgs]]{
			op: codesArgs[expertDownArgs]{op: args, stages: int32(stages)}, tags: tags, choice: choice, experts: experts})
	}
	return launchDownOfOne(q, o.Down, "_one_tagged", cuda.Grid{Threads: gemv.threads, Shared: o.Down.oneShared(q)},
		taggedDownArgs[expertDownArgs]{op: args, tags: tags, choice: choice, experts: experts})
}
