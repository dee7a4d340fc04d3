package kernels

// Rounded rows of products over quantised weights. On Hopper products of few rows hand them over to one another, in
// the form of kernels/gemm/codes_handover.cuh; those of many rows read what a kernel before them has rounded.

import (
	"slices"

	"reel.internal/reel/kernels/internal/tune"
)

// allQuantised reports whether all weights are quantised.
func allQuantised(weights []Weight) bool {
	return !slices.ContainsFunc(weights, func(w Weight) bool { return !w.DType.Quantised() })
}

// canHandCodesOver reports whether n rows of cols columns are handed over. A single row has kernels of its own.
func canHandCodesOver(n, cols int) bool {
	return n > 1 && n <= codesTokens && n*cols >= tune.LeastHanded && cols%codesChunk == 0 && n <= 2*handedAtOnce(cols)
}

// handedAtOnce returns how many handed-over rows a block multiplies at a time at most, whatever the weights' format.
func handedAtOnce(cols int) int {
	row, sums := codesRowBytes(Q6_K, cols) // which has the most sums
	return min(codesTokens, (blockShared-codesStatic-sums)/row)
}

// codesRows are the addresses of rounded rows, of each row's 1/rms, and of the sums over groups of 32 and of 16
// columns.
type codesRows struct{ rows, scales, sums, fineSums uint64 }

// handedCodes returns those of n rows that are handed over, in a [Workspace].Rounded. They only have sums over 16
// columns.
func handedCodes(workspace uint64, n, cols int) codesRows {
	scales := workspace + uint64(2*n*cols)
	sums := scales + 4*codesTokens
	return codesRows{rows: workspace, scales: scales, sums: sums, fineSums: sums}
}
