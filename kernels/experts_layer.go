package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Experts is all that a layer computes with its experts: Route, GateUp and Down, one after another, over the same rows.
// As one op they are one kernel where there is one, and the choice and the results of the gates stay what they are.
type Experts struct {
	Route  Route
	GateUp ExpertGateUp
	Down   ExpertDown
}

// Kernel returns "route and experts".
func (Experts) Kernel() string { return "route and experts" }

// Check compares dimensions, of the three ops and with each other.
func (o Experts) Check() error {
	if err := errors.Join(o.Route.Check(), o.GateUp.Check(), o.Down.Check()); err != nil {
		return err
	}
	if o.GateUp.T != o.Route.T || o.Down.T != o.Route.T || o.GateUp.Chosen != o.Route.Chosen ||
		o.Down.Chosen != o.Route.Chosen || o.Route.Hidden != o.GateUp.Gate.Cols || o.Down.hidden() != o.GateUp.Gate.Cols ||
		o.Down.Down.Cols != o.GateUp.inner() {
		return fmt.Errorf("%w: a router and experts of different rows or sizes", device.ErrBadShape)
	}
	return nil
}

// Host computes the three ops.
func (o Experts) Host(h *device.Host) {
	o.Route.Host(h)
	o.GateUp.Host(h)
	o.Down.Host(h)
}

// ExpertMeetings returns the counters of [ExpertWorkspace].Meetings for experts over rows of hidden columns: blocks of a
// GPU count at them when they have finished their gates, and their parts of a tile of 16 columns.
func ExpertMeetings(hidden int) int { return 2 + tilesOf(hidden) }

// layerRing is the ring of the kernel that computes a layer's experts (kernels/gemm/experts_row.cuh).
type layerRing struct {
	stages, stage int // none: it does not fit; bytes of a stage
	shared        int // bytes of shared memory
}

const (
	layerUnits  = 8        // of a block: tiles of 16 columns of an expert's gates
	layerJobs   = 16       // of a block: tiles of 16 columns of an expert's down projection
	layerStatic = 14 << 10 // bytes of static shared memory, at most
	routeEach   = 256      // experts of which the kernels of few experts choose
)

// newLayerRing returns the ring for experts of format d on so many blocks. A stage holds a slice of gates or of a down
// projection. Warps wait for a use of a stage by its parity, as in [expertRing]. They meet seldom, so a stage is always of
// the same row tile of gates, gate or up, and of a single job between two meetings.
func newLayerRing(d DType, hidden, inner, experts, used, blocks int) layerRing {
	gates, down := newTileRing(d, hidden), newTileRing(d, inner)
	row, sums := codesRowBytes(d, hidden)
	gated, gatedSums := codesRowBytes(d, inner)
	rest := max(row+sums, used*gated+gatedSums)
	r := layerRing{stage: max(gates.stage, down.stage)}
	r.stages = min((blockShared-layerStatic-rest)/r.stage, tileRingMost) &^ 1
	jobs, units := jobsOf(tilesOf(hidden), used, blocks), (tilesOf(inner)*used+blocks-1)/blocks
	if gates.parts < codesParts && r.stages < 2*units*gates.slices {
		return layerRing{} // other warps would use a stage again
	}
	if used > codesTokens || experts > routeEach || jobs > layerJobs || units > layerUnits ||
		r.stages < max(2*gates.slices, jobs*down.slices, 4) {
		return layerRing{}
	}
	r.shared = rest + r.stages*r.stage
	return r
}

// jobsOf returns the most jobs of a block. It has whole tiles, with a job of each expert, if there are enough blocks.
func jobsOf(tiles, used, blocks int) int {
	if tiles <= blocks {
		return used
	}
	return (tiles*used + blocks - 1) / blocks
}
