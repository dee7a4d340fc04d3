//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// launchWhole launches the kernel of whole output tiles for all of p's units, whose slices have a shape, over rounded rows.
func launchWhole[T any](q *cuda.Queue, p productLaunch, shape sliceShape, kind string, r roundedInput, args T) error {
	n := int(p.in.n)
	plan := shape.args(wholeTiles(n, shape.tiles, q.SMs()))
	plan.endUnit = int32(p.units)
	g := cuda.Grid{X: wholeGrid(q.SMs(), shape.tiles, int(plan.tokenTiles)), Y: 1, Cluster: 2, Threads: wholeThreads,
		Shared: wholeShared(), Dependent: tune.DependentLaunch}
	return cuda.Launch(q, p.name+kind+"_whole192", g, streamKArgs[T]{op: args, rounded: r, handover: p.epilogue(q, n),
		plan: plan})
}

// wholeGrid returns how many blocks compute so many output and token tiles on sms SMs.
func wholeGrid(sms, outputTiles, tokenTiles int) int { return min(outputTiles*tokenTiles, sms&^1) }

// wholeShared returns the bytes of shared memory of a block: barriers, the scale and the token info of each row, sums,
// and the stages.
func wholeShared() int {
	const row, outputs = 2 * kBlockCols, streamKTiles * tileRows
	return roundUp1024(256+20*wholeTokens+wholeTokens*(outputs+4)*4) + wholeStages*(wholeTokens+outputs)*row
}
