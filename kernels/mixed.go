package kernels

// The kernels of mixed passes (gemm/mixed.cuh) multiply generated rows and a prompt's rows after them with one read of the
// weights. They go through the work slices of the prefill class, whose K blocks come partial sum after partial sum of the
// decode class.

// mixedKernel is such a kernel: its generated rows, padding included; the most rows of prompts; and the K blocks that it
// has in shared memory.
type mixedKernel struct{ generated, prompts, stages int }

// mixedKernels are those of REEL_MIXEDS in gemm/product.cuh.
var mixedKernels = []mixedKernel{{16, 224, 4}, {32, 192, 4}}

// mixedKernelOf returns the kernel for exactly so many generated rows, or nil.
func mixedKernelOf(generated int) *mixedKernel {
	for i := range mixedKernels {
		if mixedKernels[i].generated == generated {
			return &mixedKernels[i]
		}
	}
	return nil
}

// LeastMixed is the rows of a step memory from which on its workspaces are large enough for mixed passes: from there on
// they hold the partials of two token tiles.
const LeastMixed = maxStreamKTokens + 1

// MixedRows returns how many generated rows a mixed pass of a GPU has for n sequences, padding included, and the most
// rows of prompts beside them; 0 if there is no kernel for so many. [CanMix] says for which weights there are kernels.
func MixedRows(n int) (generated, prompts int) {
	for _, k := range mixedKernels {
		if n <= k.generated {
			return k.generated, k.prompts
		}
	}
	return 0, 0
}

// CanMix reports whether a GPU with wgmma has kernels of mixed passes for a product over all of these weights.
func CanMix(weights ...Weight) bool {
	rows := 0
	for _, w := range weights {
		if w.DType.Quantised() || w.DType == F32 || min(w.Rows, w.Cols) < 1 || w.Rows%tileRows != 0 || w.Cols%128 != 0 {
			return false
		}
		rows += w.Rows
	}
	return sliceShapeOf(tilesOf(rows), weights[0].Cols, true).mixes()
}

// mixes reports whether generated rows can go through the slices: each has whole partial sums of one output tile, as many
// as many.cuh has planes for; or an output tile has at most two slices.
func (s sliceShape) mixes() bool {
	if !s.inParts || s.kBlocks < sumParts {
		return false
	}
	if each := slicesPerTile(s.slices, s.tiles); each > 0 {
		return each == 2 || each == 4 || each == 8
	}
	starts := s.starts()
	for i := range s.slices {
		if from, to := starts[i], starts[i+1]; from.kBlock > 0 && to.tile == from.tile {
			return false // a slice within an output tile
		}
	}
	return true
}

// planes returns how many planes of float32 [generated rows][128] blocks leave for one another.
func (s sliceShape) planes() int {
	switch each := slicesPerTile(s.slices, s.tiles); {
	case each > sumGroups:
		return 3 * sumGroups * s.tiles
	case each > 0:
		return sumGroups * s.tiles
	}
	return 3 * s.slices
}

// mixedBytes returns the part of [Workspace].Partials that kernel k uses: the counters after all places, the partials of
// prompts, and the planes of generated rows.
func (s sliceShape) mixedBytes(k *mixedKernel) int64 {
	const outputs = 4 * streamKTiles * tileRows
	return ClearedBytes + outputs*int64(s.slices*k.prompts+s.planes()*k.generated)
}

// shared returns the bytes of shared memory of a block. They are those for what the epilogue looks up; for the stages; for
// results that the epilogue has no room for in the stages' activations (STAGED in stream_k.cuh); and those of many.cuh
// without its rings, the last of which are for the sums of generated rows.
func (k *mixedKernel) shared() int {
	const outputs, row, pitch = streamKTiles * tileRows, 2 * kBlockCols, 4 * (streamKTiles*tileRows + 4)
	rows := k.generated + k.prompts
	return roundUp1024(256+4*rows) + roundUp1024(16*rows) + k.stages*(rows+outputs)*row +
		roundUp1024(max(0, (pitch-k.stages*row)*rows)) + roundUp1024(512+20*k.generated) + 4*outputs*k.generated
}
