//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Of kernels/route.cu and group.cu.
const (
	routeWarps = 8
	routeEach  = 256 // experts of which the kernels of few experts choose
	routeRows  = 4   // that a block takes together, of a step with more rows than one
	// routeManyExperts is the experts of a warp in a step of more than fewSegmentRows rows.
	routeManyExperts = 4
	routeGroups      = 32 // at most
	groupThreads     = 1024
)

// CUDA launches the router, whose grid does not depend on the choice. The experts' gates sort the places of several
// rows.
func (o Route) CUDA(q *cuda.Queue) error {
	a, err := o.args(q)
	if err != nil {
		return err
	}
	rows, each, most, many := 1, routeWarps, routeEach, ""
	if o.T > 1 {
		rows = routeRows
	}
	if o.T > fewSegmentRows {
		each, many = routeWarps*routeManyExperts, "_many"
	}
	if o.Chosen.Experts > most {
		most = MostExperts
	}
	return cuda.Launch(q, fmt.Sprintf("reel_route%d%s_%d", rows, many, most), cuda.Grid{
		X: (o.Chosen.Experts + each - 1) / each, Y: (o.T + rows - 1) / rows, Threads: routeWarps * 32,
		Dependent: tune.DependentLaunch}, a)
}

// args returns the router's arguments, or why it cannot be launched.
func (o Route) args(q *cuda.Queue) (routeArgs, error) {
	c := o.Chosen
	if err := checkBuffers(need{"logits", o.Workspace.Logits, o.T * c.Experts}, need{"arrivals", o.Workspace.Arrivals,
		o.T},
		need{"segments", c.Segments, int(SegmentsBytes(o.T, c.Used, c.Experts) / 4)}); err != nil {
		return routeArgs{}, err
	}
	if o.Groups > routeGroups || o.Hidden%4 != 0 {
		return routeArgs{}, fmt.Errorf("%w: %d groups of experts over %d columns, wants at most %d and a multiple of 4",
			device.ErrBadShape, o.Groups, o.Hidden, routeGroups)
	}
	a := routeArgs{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.RowIndex), router: q.Address(o.Router),
		bias: q.Address(o.Bias), choice: q.Address(o.Choice), logits: q.Address(o.Workspace.Logits),
		arrivals: q.Address(o.Workspace.Arrivals), ids: q.Address(c.IDs), weights: q.Address(c.Weights),
		t: int32(o.T), hidden: int32(o.Hidden), experts: int32(c.Experts), used: int32(c.Used),
		groups: int32(o.Groups), groupsUsed: int32(o.GroupsUsed), bestTwo: flag(o.BestTwo), scoring: int32(o.Scoring),
		normalise: flag(o.Normalise), byScore: flag(o.byScore()), scale: o.Scale, eps: o.Eps, scales: q.Address(o.ExpertScales)}
	if a.scale == 0 {
		a.scale = 1
	}
	if o.T == 1 {
		segments := c.segmentArgs(q, 1)
		a.count, a.expert, a.place, a.row = segments.count, segments.expert, segments.place, segments.row
	}
	return a, nil
}

// sortPlaces launches the kernel that sorts the pairs of rows and experts into segments. Of one row the router has done
// it.
func (c Chosen) sortPlaces(q *cuda.Queue, rows device.Buffer, T int) error {
	if T == 1 {
		return nil
	}
	return cuda.Launch(q, "reel_group", cuda.Grid{X: 1, Threads: groupThreads, Dependent: tune.DependentLaunch},
		c.groupArgs(q, rows, T))
}

func (c Chosen) groupArgs(q *cuda.Queue, rows device.Buffer, T int) groupArgs {
	s := c.segmentArgs(q, T)
	return groupArgs{ids: q.Address(c.IDs), rows: q.Address(rows), count: s.count, expert: s.expert, place: s.place,
		row: s.row, t: int32(T), used: int32(c.Used), segments: s.segments, each: s.places}
}

// logits launches the kernel that computes the logits of several rows alone.
func (o Route) logits(q *cuda.Queue, a routeArgs) error {
	return cuda.Launch(q, fmt.Sprintf("reel_route%d_logits", routeRows), cuda.Grid{
		X: (o.Chosen.Experts + routeWarps - 1) / routeWarps, Y: (o.T + routeRows - 1) / routeRows, Threads: routeWarps * 32,
		Dependent: tune.DependentLaunch}, a)
}

// choose launches the kernel that chooses the experts of several rows, of their logits, and sorts their places.
func (o Route) choose(q *cuda.Queue, a routeArgs) error {
	most := routeEach
	for _, n := range []int{128, 32} {
		if o.Chosen.Experts <= n {
			most = n
		}
	}
	return cuda.Launch(q, fmt.Sprintf("reel_choose_%d", most), cuda.Grid{X: 1, Threads: groupThreads,
		Dependent: tune.DependentLaunch}, chooseArgs{route: a, group: o.Chosen.groupArgs(q, o.RowIndex, o.T)})
}

// segmentArgs returns the addresses in c for T rows.
func (c Chosen) segmentArgs(q *cuda.Queue, T int) chosenArgs {
	n := uint64(segmentsOf(T, c.Used, c.Experts))
	count := q.Address(c.Segments)
	expert := count + 4*segmentsAt
	place := expert + 4*n
	return chosenArgs{weights: q.Address(c.Weights), count: count, expert: expert, place: place,
		row: place + 4*n*uint64(placesOf(T)), segments: int32(n), places: int32(placesOf(T))}
}
