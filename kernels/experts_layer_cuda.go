//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA launches fewer kernels than the three ops for few rows: one chooses the experts, of the router's logits, and sorts
// places. For one row the router does both.
func (o Experts) CUDA(q *cuda.Queue) error {
	if o.Tags.areUsed(q) {
		return o.tagged(q)
	}
	if o.Route.T > 1 && placesOf(o.Route.T) == fewPlaces && o.Route.Chosen.Experts <= routeEach && !o.Down.isGrouped(q) {
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

// ofRows launches the kernels of several rows.
func (o Experts) ofRows(q *cuda.Queue) error {
	route, err := o.Route.args(q)
	if err != nil {
		return err
	}
	return inTurn(q, func(q *cuda.Queue) error { return o.Route.logits(q, route) },
		func(q *cuda.Queue) error { return o.Route.choose(q, route) }, o.GateUp.ofSegments, o.Down.CUDA)
}
