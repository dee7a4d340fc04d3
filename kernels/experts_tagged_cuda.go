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
	if o.Tags.Ranks > 0 {
		return o.taggedOnRanks(q, route)
	}
	return inTurn(q, func(q *cuda.Queue) error { return o.taggedLogits(q, route) },
		func(q *cuda.Queue) error { return o.taggedGates(q, route) }, o.taggedDown)
}

// between returns the tags of one of the kernels. All but those of the residual stream have the number of what the
// layer gives.
func (o Experts) between(in, out device.Buffer) Tags {
	t := o.Tags
	if t.In, t.Out = in, out; in != o.Tags.In {
		t.Taken = t.Given
	}
	t.ForCodes = o.Down.Down.DType.Quantised() // of the gates' results
	return t
}

func (o Experts) tags(q *cuda.Queue, in, out device.Buffer) tagsArgs {
	return o.between(in, out).args(q)
}

// logitsGrid is that of the kernel of the logits.
func (o Experts) logitsGrid() cuda.Grid {
	return cuda.Grid{X: splitsOf(o.Route.Chosen.Experts, routeWarps), Threads: routeWarps * 32, Shared: 4 * o.Route.Hidden,
		Dependent: tune.DependentLaunch}
}

func (o Experts) taggedLogits(q *cuda.Queue, route routeArgs) error {
	return cuda.Launch(q, "reel_route1_tagged", o.logitsGrid(),
		taggedRouteArgs{of: route, tags: o.tags(q, o.Tags.In, o.Between.Logits)})
}

// gatesGrid is that of the gates over bfloat16.
func (o Experts) gatesGrid(q *cuda.Queue) cuda.Grid {
	units := tilesOf(o.GateUp.inner()) * o.Route.Chosen.Used
	return cuda.Grid{X: min(units, 2*q.SMs(), tune.MaxPersistentBlocks), Threads: gemv.threads,
		Shared: gemvRowBytes(o.Route.Hidden, true), Dependent: tune.DependentLaunch}
}

// taggedGates launches blocks that take units of all the row's experts in turn: two on an SM over bfloat16, over codes
// one, which has a ring.
func (o Experts) taggedGates(q *cuda.Queue, route routeArgs) error {
	d, hidden, units := o.GateUp.Gate.DType, o.Route.Hidden, tilesOf(o.GateUp.inner())*o.Route.Chosen.Used
	args, tags := o.GateUp.args(q), o.tags(q, o.Tags.In, o.Between.Inner)
	args.in.n = 1
	choice := choiceArgs{of: route, logits: q.Address(o.Between.Logits), choice: q.Address(o.Between.Choice)}
	name := "reel_expert_gateup" + formats[d].kernel + "_one_tagged"
	if d == BF16 {
		return cuda.Launch(q, name, o.gatesGrid(q), taggedGatesArgs[expertGateUpArgs]{op: args, tags: tags, choice: choice})
	}
	stages, shared := expertRing(d, hidden, 1, 2)
	g := cuda.Grid{X: min(units, q.SMs(), tune.MaxPersistentBlocks), Threads: expertRingThreads, Shared: shared,
		Dependent: tune.DependentLaunch}
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

// taggedOnRanks launches the three kernels of one of several GPUs, over bfloat16. All get its part of the gates of each
// expert, and its columns of the residual stream.
func (o Experts) taggedOnRanks(q *cuda.Queue, route routeArgs) error {
	part, width, tags := o.GateUp.inner()/2, o.Down.Down.Cols, o.between
	logits := tags(o.Tags.In, o.Between.Logits).rankArgs(q, 0)
	err := cuda.Launch(q, "reel_route1_tagged_ranks", o.logitsGrid(), rankRouteArgs{of: route, tags: logits})
	if err != nil {
		return err
	}
	gates := rankGatesArgs{op: o.GateUp.args(q), tags: tags(o.Tags.In, o.Between.Inner).rankArgs(q, part),
		choice: choiceArgs{of: route, logits: q.Address(o.Between.Logits), choice: q.Address(o.Between.Choice)}}
	gates.op.in.n, gates.tags.apart = 1, int32(tilesOf(width))
	err = cuda.Launch(q, "reel_expert_gateup_bf16_one_tagged_ranks", o.gatesGrid(q), gates)
	if err != nil {
		return err
	}
	g := cuda.Grid{X: tilesOf(o.Down.hidden()), Threads: gemv.threads, Shared: o.Down.oneShared(q),
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_expert_down_bf16_one_tagged_ranks", g, rankDownArgs{op: o.Down.args(q),
		tags:   tags(o.Between.Inner, o.Tags.Out).rankArgs(q, o.Down.hidden()),
		choice: q.Address(o.Between.Choice), experts: int32(o.Route.Chosen.Experts)})
}
