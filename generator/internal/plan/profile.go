package plan

import "reel.internal/reel/kernels"

// pageTokens is the number of tokens in a KV page.
const pageTokens = 16

// Profile holds the defaults of a kind of device, and how it allocates memory.
type Profile struct {
	kind        string // host or cuda
	maxBatch    int    // sequences
	chunk       int    // prompt tokens of one step
	graphMemory int64  // bytes
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
var HostProfile = Profile{kind: "host", maxBatch: 64, chunk: 64, graphMemory: 64 << 20, block: 1}

// gpuChunk is four full token tiles of a prompt's products on Hopper, 208 rows each, which 132 SMs divide evenly: a pass
// of 832 rows takes a fifth less for each row than one of 512, which are three tiles of 176 (kernels/notes/stream_k.md).
// A model with experts reads all of them in each chunk.
const gpuChunk = 832

// GPUProfile is the profile of a GPU. Context and kernels took 526 MiB on an H200;
// Overhead is above that. A generator that starts measures its own.
var GPUProfile = Profile{
	kind: "cuda", maxBatch: 64, chunk: gpuChunk, graphMemory: 1 << 30, kvType: kernels.BF16, Packed: true,
	block: 2 << 20, execBytes: 109_600, nodeBytes: 2_470, staging: kernels.StagingBytes, Overhead: 640 << 20,
}
