package plan

import (
	"time"

	"reel.internal/reel/kernels"
)

// pageTokens is the number of tokens in a KV page.
const pageTokens = 16

// Profile holds the defaults of a kind of device, and how it allocates memory.
type Profile struct {
	kind        string        // host or cuda
	minBatch    int           // sequences: the default batch, and what memory does not lower it below
	maxBatch    int           // the default batch, where the KV pool is large enough for it
	chunk       int           // prompt tokens of one step
	longChunk   int           // the same of a dense model in 16 bits, for embeddings, a prompt alone, or bursts; 0: none
	hopper      bool          // a GPU of that kind, which may have mixed steps
	gap         time.Duration // of --token-gap
	graphMemory int64         // bytes
	kvType      kernels.DType
	// Packed reports whether weights are copied to the device as 16-bit tiles of 16 rows.
	// Otherwise the device reads the mapped file, and weights take no memory.
	Packed bool
	// block is the granularity of allocations in bytes; small allocations share a block.
	block int64
	// A captured graph takes execBytes, and nodeBytes for each node.
	execBytes, nodeBytes int64
	// staging is the memory that packing needs beside the weights while they are loaded.
	staging int64
	// Overhead is the memory of context, kernels and libraries.
	Overhead int64
}

// HostProfile is the profile of this machine's processors. A chunk of 64 tokens takes
// about as long as a decode step of the largest batch, so neither delays the other.
var HostProfile = Profile{kind: "host", minBatch: 64, maxBatch: 64, chunk: 64, gap: 50 * time.Millisecond,
	graphMemory: 64 << 20, block: 1}

// largeChunk is the chunk on a GPU of a model with experts, as a chunk reads nearly all of them and larger ones read less,
// and of a model for embeddings, whose prompts nobody's next token waits for. Four token tiles
// of 208 rows are what 132 SMs divide evenly (kernels/notes/stream_k.md).
const largeChunk = 832

// hopperChunk is the chunk on Hopper of a dense model for embeddings in 16 bits, and that of long steps in
// one that generates: eight token tiles of the products of long prompts, which 66 pairs of SMs divide best; half as many
// take one round of them (kernels/notes/stream_k.md). In a burst the scheduler decides which it has.
const hopperChunk = 1536

// On returns the profile of a GPU of a compute capability.
func (p Profile) On(major, minor int) Profile {
	if major == 9 && minor == 0 {
		p.longChunk, p.hopper = hopperChunk, true
	}
	return p
}

// GPUProfile is the profile of a GPU. A chunk is two token tiles of the products of prompts on Hopper
// (kernels/gemm/stream_k.cuh), which share their reads of a weight: 416 rows took 8.8 ms on an H100 when
// 512, three tiles, took 14.6; in whole output tiles these take 13. Context and kernels took 526 MiB on an H200; Overhead is
// above that. A generator that starts measures its own.
var GPUProfile = Profile{
	kind: "cuda", minBatch: 64, maxBatch: 256, chunk: 416, gap: 20 * time.Millisecond,
	graphMemory: 1 << 30, kvType: kernels.BF16, Packed: true,
	block: 2 << 20, execBytes: 109_600, nodeBytes: 2_470, staging: kernels.StagingBytes, Overhead: 640 << 20,
}
