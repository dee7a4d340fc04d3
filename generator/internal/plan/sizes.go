package plan

import "reel/generator/internal/model"

// Sizes is what a model takes with so much context and so many sequences, in bytes.
type Sizes struct {
	context, batch int
	longest        int64 // KV pages of one sequence of that context
	pageBytes      int64
	Pages          int64 // KV pages, without the trash page
	reserve        int64 // places past the batch, each for a user that holds none
	kept           int64 // KV pages kept with each of these places
	weights        []weightSize
	loading        int64 // while weights are packed, beside them
	Arena          int64 // activations, slots, rings
	StartGraphs    int   // captured at start
	GraphsAtStart  int64 // what those take
	Graphs         int64 // what all graphs may take
	Overhead       int64
}

// weightSize is what the weights of one kind take.
type weightSize struct {
	kind              model.TensorKind
	parameters, bytes int64
}

// WeightBytes is what all weights take.
func (s Sizes) WeightBytes() (n int64) {
	for _, w := range s.weights {
		n += w.bytes
	}
	return n
}

// KVPool is what the pool takes, and the page that padding writes to.
func (s Sizes) KVPool() int64 { return (s.Pages + 1) * s.pageBytes }

// fixed is what is taken whatever the pool and the graphs are.
func (s Sizes) fixed() int64 { return s.Overhead + s.WeightBytes() + s.Arena }

// Total is the most that is ever taken. While weights are loaded there is no pool yet.
func (s Sizes) Total() int64 {
	return s.Overhead + s.WeightBytes() + max(s.loading, s.Arena+s.KVPool()+s.Graphs)
}

// AtStart is what is taken when the generator is ready.
func (s Sizes) AtStart() int64 { return s.fixed() + s.KVPool() + s.GraphsAtStart }

// places is how many sequences run at once at most, those of the reserve included.
func (s Sizes) places() int { return s.batch + int(s.reserve) }

// most is how many pages there is a use for: the whole context for every sequence of
// the batch, and beside it what the reserve keeps.
func (s Sizes) most() int64 { return s.longest*int64(s.batch) + s.reserve*s.wanted() }

// wanted is how many pages are kept with each place of the reserve if there is room.
func (s Sizes) wanted() int64 { return min(s.longest, reserveTokens/pageTokens) }

// keep divides the pages: the reserve takes at most an eighth of them, or what the
// batch has no use for, and leaves one longest sequence its own.
func (s Sizes) keep() int64 {
	spare := min(max(s.Pages/8, s.Pages-s.longest*int64(s.batch)), s.Pages-s.longest)
	return min(s.wanted(), max(0, spare)/s.reserve)
}

// full tells whether every sequence of the batch may have the whole context at once.
func (s Sizes) full() bool { return s.Pages >= s.most() }

// Serves tells whether one sequence may have the whole context.
func (s Sizes) Serves() bool { return s.Pages >= s.longest }

// reserveTokens is how long a request is that a place of the reserve holds pages for.
const reserveTokens = 1024

// reservePlaces is how many places are kept beside a batch for further users.
func reservePlaces(batch int) int { return min(max(batch/16, 1), 4) }
