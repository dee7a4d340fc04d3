package plan

import (
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
)

// Sizes is the memory that a model takes with a context and a batch. All but the counts
// are bytes.
type Sizes struct {
	context, batch int   // tokens; slots without the reserve
	longest        int64 // KV pages of one sequence of that context
	pageBytes      int64 // of what is planned
	hostPage       int64 // bytes of a page that has left the device, on all ranks
	Pages          int64 // KV pages, without the trash page
	reserve        int64 // slots past the batch, each for a user that holds none
	kept           int64 // KV pages kept with each slot of the reserve
	weights        []weightSize
	loading        int64 // beside the weights, while they are packed
	Arena          int64 // step memory: activations, slots, rings
	StartGraphs    int   // graphs captured at start
	GraphsAtStart  int64 // memory of those
	Graphs         int64 // bound on the memory of all graphs
	Overhead       int64
	HostCache      int64 // host tier for KV pages
	hostCacheHere  int64 // the part of it that is in the device's memory: all on the host, nothing on a GPU
}

// weightSize is the size of the weights of one kind.
type weightSize struct {
	kind              model.TensorKind
	parameters, bytes int64
	// read is the bytes of matrices that the host reads where they lie in files, or makes at load of others: the limits
	// count both before the plan has its part, see [WeightUse].
	read int64
}

// WeightBytes returns the bytes of all weights.
func (s Sizes) WeightBytes() (n int64) {
	for _, w := range s.weights {
		n += w.bytes
	}
	return n
}

// ReadBytes returns the bytes of the matrices that are not the device's memory, but the host's beside the plan.
func (s Sizes) ReadBytes() (n int64) {
	for _, w := range s.weights {
		n += w.read
	}
	return n
}

// KVPool returns the bytes of the KV pool, with the trash page.
func (s Sizes) KVPool() int64 { return (s.Pages + 1) * s.pageBytes }

// fixed returns the bytes that do not depend on the pool and the graphs.
func (s Sizes) fixed() int64 {
	return s.Overhead + s.WeightBytes() + s.Arena + s.hostCacheHere
}

// Total returns the peak in bytes.
func (s Sizes) Total() int64 { return s.fixed() + s.KVPool() + s.varying() }

// varying returns the most bytes that graphs, and what loading takes beside those of the start, have at one time.
func (s Sizes) varying() int64 { return max(s.Graphs, s.GraphsAtStart+s.loading) }

// AtStart returns the bytes taken when the generator is ready.
func (s Sizes) AtStart() int64 { return s.fixed() + s.KVPool() + s.GraphsAtStart }

// slots returns the number of slots, the reserve included.
func (s Sizes) slots() int { return s.batch + int(s.reserve) }

// most returns the largest useful number of pages: the whole context for every sequence
// of the batch, and the pages of the reserve.
func (s Sizes) most() int64 { return s.longest*int64(s.batch) + s.reserve*s.wanted() }

// wanted returns the pages to keep with each slot of the reserve if memory suffices.
func (s Sizes) wanted() int64 { return min(s.longest, reserveTokens/pageTokens) }

// keep returns the pages kept with each slot of the reserve. The reserve takes at most an
// eighth of all pages, or those that the batch cannot use, and leaves enough for one
// sequence of the longest context.
func (s Sizes) keep() int64 {
	spare := min(max(s.Pages/8, s.Pages-s.longest*int64(s.batch)), s.Pages-s.longest)
	return min(s.wanted(), max(0, spare)/s.reserve)
}

// full reports whether all sequences of the batch may have the whole context at once.
func (s Sizes) full() bool { return s.Pages >= s.most() }

// Serves reports whether one sequence may have the whole context.
func (s Sizes) Serves() bool { return s.Pages >= s.longest }

// reserveTokens is the length of a request that one slot of the reserve has pages for.
const reserveTokens = 1024

// reserveSlots returns how many slots are reserved beside a batch for further users.
func reserveSlots(batch int) int { return min(max(batch/16, 1), 4) }

// readBytes returns the bytes of a matrix as the host reads it, converted if it is; 0 of others, and on a GPU.
func (p Planner) readBytes(t model.TensorSpec) int64 {
	f := p.Formats[t.Name]
	switch {
	case !t.Matrix() || p.Profile.Packed:
		return 0
	case t.Unpacked && f.Quantised():
		f = kernels.F32
	case f == 0:
		f = kernels.BF16
	}
	return f.Bytes(t.Elements())
}
