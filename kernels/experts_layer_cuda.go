//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches fewer kernels than the three ops where it can: of one row over quantised weights one that chooses the
// experts, of the router's logits, and computes them; of few rows one that chooses and sorts places.
func (o Experts) CUDA(q *cuda.Queue) error {
	blocks := min(q.SMs(), tune.MaxPersistentBlocks)
	switch r := o.ring(q, blocks); {
	case r.stages > 0:
		return o.ofRow(q, r, blocks)
	case o.Route.T > 1 && placesOf(o.Route.T) == fewPlaces && o.Route.Chosen.Experts <= routeEach && !o.Down.isGrouped(q):
		return o.ofRows(q)
	}
	return inTurn(q, o.Route.CUDA, o.GateUp.CUDA, o.Down.CUDA)
}

func inTurn(q *cuda.Queue, launches ...func(*cuda.Queue) error) error {
	for _, launch := range launches {
		if err := launch(q); err != nil {
			return err
		}
	}
	return nil
}

// ring returns the ring of the kernel of one row, without stages if there is none for these experts.
func (o Experts) ring(q *cuda.Queue, blocks int) layerRing {
	hidden, inner, c := o.Down.hidden(), o.GateUp.inner(), o.Route.Chosen
	d := o.Down.Down.DType
	if !hopper(q) || !tune.CodesRing || !d.Quantised() || o.GateUp.Gate.DType != d || o.GateUp.Up.DType != d ||
		o.Route.T != 1 || o.Down.Store || o.Down.isGrouped(q) || hidden%tileRows != 0 || inner%tileRows != 0 ||
		o.Down.Workspace.Meetings.Bytes() < int64(4*ExpertMeetings(hidden)) {
		return layerRing{}
	}
	return newLayerRing(d, hidden, inner, c.Experts, c.Used, blocks)
}

// ofRow launches the router's logits, and the kernel of one row.
func (o Experts) ofRow(q *cuda.Queue, r layerRing, blocks int) error {
	if err := checkBuffers(need{"results", o.Down.Workspace.Results, o.Route.Chosen.Used * o.Down.hidden()}); err != nil {
		return err
	}
	route, err := o.Route.args(q)
	if err != nil {
		return err
	}
	if err := o.Route.logits(q, route); err != nil {
		return err
	}
	return cuda.Launch(q, "reel_experts_row"+formats[o.Down.Down.DType].kernel, cuda.Grid{X: blocks,
		Threads: expertRingThreads, Shared: r.shared, Dependent: tune.DependentLaunch}, expertsArgs{
		gates: o.GateUp.args(q), down: o.Down.args(q), route: route, arrivals: q.Address(o.Down.Workspace.Meetings),
		stages: int32(r.stages), stage: int32(r.stage)})
}

// ofRows launches the kernels of several rows.
func (o Experts) ofRows(q *cuda.Queue) error {
	route, err := o.Route.args(q)
	if err != nil {
		return err
	}
	return inTurn(q, func(q *cuda.Queue) error { return o.Route.logits(q, route) },
		func(q *cuda.Queue) error { return o.Route.choose(q, route) }, o.GateUp.ofSegments, o.Down.CUDA)
}
