package plan

import "reel/kernels"

// pageTokens is how many tokens a KV page holds.
const pageTokens = 16

// Profile is what a kind of device does at once, and how it takes memory.
type Profile struct {
	kind        string // host or cuda
	maxBatch    int    // sequences
	chunk       int    // prompt tokens of one step
	graphMemory int64
	kvType      kernels.DType
	// Packed says that weights are copied, as 16-bit tiles of 16 rows. Otherwise
	// they are read where the file is mapped, and take nothing.
	Packed bool
	// block is what an allocation is rounded to; smaller ones share one.
	block int64
	// execBytes is what a captured graph takes, and nodeBytes each of its nodes beside.
	execBytes, nodeBytes int64
	// staging is what loading takes beside the weights: parts that are being packed.
	staging int64
	// Overhead is taken before anything is loaded: context, kernels, libraries.
	Overhead int64
}

// HostProfile is this machine's processors. A chunk of 64 tokens takes about as
// long as the largest batch's decode step, so that neither holds up the other.
var HostProfile = Profile{kind: "host", maxBatch: 64, chunk: 64, graphMemory: 64 << 20, block: 1}

// GPUProfile is a GPU. Its overhead is more than the 526 MiB of a context, and
// the kernels', as they were measured on an H200; a generator measures its own.
var GPUProfile = Profile{kind: "cuda", maxBatch: 64, chunk: 512, graphMemory: 1 << 30, kvType: kernels.BF16, Packed: true,
	block: 2 << 20, execBytes: 109_600, nodeBytes: 2_470, staging: kernels.StagingBytes, Overhead: 640 << 20}
