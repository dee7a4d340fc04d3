//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// places returns the addresses in c of what the grouped GEMM reads for T rows.
func (c Chosen) places(q *cuda.Queue, T int, v groupedVariant) placesArgs {
	slots := expertSlots(T, c.Used, c.Experts)
	count := q.Address(c.Segments)
	tiles := count + 4*segmentsAt
	place := tiles + 16*uint64(expertTokenTiles(T, c.Used, c.Experts, v.tokens))
	return placesArgs{count: count, tiles: tiles, place: place, slot: place + 4*uint64(slots), slots: int32(slots)}
}

// group launches the kernel that sorts places into slots and token tiles.
func (c Chosen) group(q *cuda.Queue, T int, v groupedVariant) error {
	p := c.places(q, T, v)
	return cuda.Launch(q, "reel_group_places", cuda.Grid{X: 1, Threads: groupThreads, Dependent: tune.DependentLaunch},
		groupPlacesArgs{ids: q.Address(c.IDs), count: p.count, tiles: p.tiles, place: p.place, slot: p.slot,
			places: int32(T * c.Used), most: int32(v.tokens)})
}

// groupedLaunch is a product over the slots of experts.
type groupedLaunch struct {
	name         string // of the kernels, without format and variant
	w            Weight // one of the stacks
	units, tiles int    // units of an expert; row tiles of a unit
	T            int
	chosen       Chosen
	rounded      uint64 // rows of slots, then scales
	in           activations
	used         int  // places of a row of in
	inputIsThere bool // rounded already
	variant      groupedVariant
}

// launchGrouped rounds the rows of in for their slots, unless they are there, and launches the product.
func launchGrouped[T any](q *cuda.Queue, p groupedLaunch, args T) error {
	places := p.chosen.places(q, p.T, p.variant)
	cols := int(p.in.cols)
	scales := p.rounded + uint64(places.slots)*uint64(2*cols)
	if !p.inputIsThere {
		err := cuda.Launch(q, "reel_round_places"+formats[groupedType(p.w)].kernel, cuda.Grid{X: int(p.in.n), Threads: 256,
			Dependent: tune.DependentLaunch}, roundPlacesArgs{in: p.in, out: p.rounded, scales: scales, slot: places.slot,
			slots: places.slots, used: int32(p.used)})
		if err != nil {
			return err
		}
	}
	outputTiles := splitsOf(p.units*p.tiles, streamKTiles)
	items := outputTiles * expertTokenTiles(p.T, p.chosen.Used, p.chosen.Experts, p.variant.tokens)
	return cuda.Launch(q, fmt.Sprintf("%s%s_grouped%d", p.name, formats[p.w.DType].kernel, p.variant.tokens), cuda.Grid{
		X: min(p.variant.blocks*q.SMs(), items, tune.MaxPersistentBlocks), Threads: 384,
		Shared: p.variant.shared(p.w.DType, p.tiles), Dependent: tune.DependentLaunch},
		groupedArgs[T]{op: args, rows: p.rounded, scales: scales, places: places, kBlocks: int32(cols / kBlockCols),
			outputTiles: int32(outputTiles)})
}

// grouped launches the kernels of a prompt's rows, if they can compute o.
func (o ExpertGateUp) grouped(q *cuda.Queue) (done bool, err error) {
	if !hopper(q) || !o.Chosen.groups(o.Class, o.T, o.Gate.Cols, o.inner(), o.RowIndex.Bytes() > 0, o.Workspace, o.Gate,
		o.Up) {
		return false, nil
	}
	v := groupedVariantOf(o.T*o.Chosen.Used, o.Chosen.Experts)
	if err := o.Chosen.group(q, o.T, v); err != nil {
		return true, err
	}
	linear, cubic := o.exponent()
	args := groupedGateUpArgs{gate: q.Address(o.Gate.Data), up: q.Address(o.Up.Data), gateBias: q.Address(o.GateBias),
		upBias: q.Address(o.UpBias), out: q.Address(o.Out), linear: linear, cubic: cubic, limit: o.Limit, inner: int32(o.inner()),
		slots: int32(expertSlots(o.T, o.Chosen.Used, o.Chosen.Experts))}
	if o.HandsOver {
		args.rounded = q.Address(o.Workspace.Gated)
	}
	return true, launchGrouped(q, groupedLaunch{name: "reel_expert_gateup", w: o.Gate, units: tilesOf(o.inner()),
		tiles: 2, T: o.T, chosen: o.Chosen, rounded: q.Address(o.Workspace.Rounded), in: activations{x: q.Address(o.X),
			norm: q.Address(o.Norm), cols: int32(o.Gate.Cols), n: int32(o.T), eps: o.Eps}, used: o.Chosen.Used,
		variant: v}, args)
}

// isGrouped reports whether the kernels of a prompt's rows can compute o.
func (o ExpertDown) isGrouped(q *cuda.Queue) bool {
	return hopper(q) && o.Chosen.groups(o.Class, o.T, o.hidden(), o.Down.Cols, o.RowIndex.Bytes() > 0, o.Workspace,
		o.Down)
}

// grouped launches the product of a prompt's rows. The gates have sorted their places.
func (o ExpertDown) grouped(q *cuda.Queue, results uint64) error {
	args := groupedDownArgs{w: q.Address(o.Down.Data), bias: q.Address(o.Bias), weights: q.Address(o.Chosen.Weights),
		results: results, hidden: int32(o.hidden())}
	return launchGrouped(q, groupedLaunch{name: "reel_expert_down", w: o.Down, units: tilesOf(o.hidden()), tiles: 1,
		T: o.T, chosen: o.Chosen, rounded: q.Address(o.Workspace.Gated), in: activations{x: q.Address(o.In),
			cols: int32(o.Down.Cols), n: int32(o.T * o.Chosen.Used)}, used: 1, inputIsThere: o.InputIsRounded,
		variant: groupedVariantOf(o.T*o.Chosen.Used, o.Chosen.Experts)}, args)
}

var groupedLarge = groupedVariant{208, 1}

// groupedVariantOf returns the variant for so many places of so many experts. Both ops of a layer have the same. The
// choice changes no bit.
func groupedVariantOf(places, experts int) groupedVariant {
	// Measured: where experts have up to 4/5 of a tile's places on average, what some read twice costs less than larger
	// tiles do.
	small := 5*places <= 4*groupedSmall.tokens*experts
	if tune.GroupedTokens != 0 {
		small = tune.GroupedTokens == groupedSmall.tokens
	}
	if small {
		return groupedSmall
	}
	return groupedLarge
}

// shared returns the bytes of shared memory of v over weights of a format; gemm/grouped.cuh has the same numbers.
// tiles: row tiles of a unit.
func (v groupedVariant) shared(format DType, tiles int) int {
	const mostStages = 24
	header := roundUp1024(512 + 16*v.tokens)
	if tiles == 2 {
		header += streamKTiles << 10
	}
	stage := v.tokens*tokenBlockBytes + streamKTiles*groupedTileBytes(format)
	room := 227<<10/v.blocks - (v.blocks-1)<<10 - header
	return header + min(room/stage, mostStages)*stage
}

// groupedTileBytes returns the bytes of a row tile in a stage.
func groupedTileBytes(format DType) int {
	if !format.Quantised() {
		return tileRows * tokenBlockBytes
	}
	b := &bricks[format]
	return b.quarterBytes() + b.scaleBytes
}

// groups reports whether the kernels above can compute experts of so many columns of which T rows use some, in a step
// of this class. Both ops of a layer get the same answer.
func (c Chosen) groups(class Class, T, hidden, inner int, rows bool, w ExpertWorkspace, stacks ...Weight) bool {
	for _, s := range stacks {
		if t := groupedType(s); t == 0 || t != groupedType(stacks[0]) {
			return false
		}
	}
	return class == Prefill && !rows && hidden%kBlockCols == 0 && inner%kBlockCols == 0 &&
		c.Segments.Bytes() >= placesBytes(T, c.Used, c.Experts) &&
		w.Rounded.Bytes() >= ExpertsRoundedBytes(T, c.Used, c.Experts, hidden) &&
		w.Gated.Bytes() >= ExpertsRoundedBytes(T, c.Used, c.Experts, inner)
}
