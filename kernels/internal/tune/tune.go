// Package tune holds settings of kernel launches that tests change (kernels/cudatest). In
// production they keep the values below. Only MaxWorkSlices changes results; for the others
// tests show that results are the same bit for bit.
package tune

import "math"

// MaxWorkSlices bounds the work slices of a stream-K GEMM, and so its blocks that run at the
// same time. It is the number of SMs of an H100 or H200. It must be the same on all GPUs,
// because the order of sums depends on it.
var MaxWorkSlices = 132

// StreamKTokens is the token rows per block of the only stream-K variant to use: 16, 56, 104
// or 208, or 192 for the kernel of whole output tiles. 0 uses the one that is fastest for the number of rows.
var StreamKTokens = 0

// GroupedTokens is the rows of a tile of the only grouped GEMM to use for a prompt's experts: 56 or 208. 0 uses the one that is faster for the number of rows.
var GroupedTokens = 0

// MaxPersistentBlocks bounds the persistent blocks of a product.
var MaxPersistentBlocks = math.MaxInt32

// DependentLaunch lets a kernel start, and prefetch its first weights, before the kernel before
// it has ended (programmatic dependent launch).
var DependentLaunch = true

// Tagged lets the ops of a pass of one row pass their results on as tagged values.
var Tagged = true

// ParallelSplits lets different blocks attend to the splits of a prompt row's context.
var ParallelSplits = true

// ShareMerge lets all blocks that computed splits of the same rows merge them, on GPUs where all run at the same time.
var ShareMerge = true

// PrefillQueries is the number of queries in a tile of prefill attention: 16, 32 or 64, or 128 where there is a kernel
// for many rows. 0 uses that one for many rows, else the smallest with which all tiles run at the same time.
var PrefillQueries = 0

// WideTogether lets the keys and the values of a block of attention over wide heads lie in shared memory at once, where
// it has room for both.
var WideTogether = true

// WideRows lets a block of attention over wide heads have several rows of a prompt.
var WideRows = true

// CodesRing lets Hopper multiply one row by quantised weights from a ring in shared memory, where that is
// faster.
var CodesRing = true

// ManyAttend is how many heads of all rows there are for each SM, at most, where more than 8 rows of the decode class are
// attended to by blocks of their own, on Hopper; of more, blocks stay and take units of work.
var ManyAttend = 1

// AheadBytes is how much of the weights that come next an SM brings to the cache at the end of a kernel of many rows.
var AheadBytes = 32 << 10

// LeastHanded is the fewest values of rows that products of few rows over quantised weights hand over to one another:
// with fewer, rounding them in each block takes no longer (notes/quantised.md).
var LeastHanded = 6 * 4096

// LeastClusterVocab is the fewest logits of a row that a cluster of blocks samples from, in passes of few samples on
// Hopper.
var LeastClusterVocab = 16384
