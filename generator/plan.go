//go:build linux

package main

import (
	"fmt"

	"reel/generator/internal/config"
	"reel/generator/internal/engine"
	"reel/generator/internal/model"
	"reel/graphs"
	"reel/kernels"
	"reel/kernels/device"
	"reel/protocol"
)

// pageTokens is how many tokens a KV page holds.
const pageTokens = 16

// profile is what a kind of device does at once, and how it takes memory.
type profile struct {
	kind        string // host or cuda
	maxBatch    int    // sequences
	chunk       int    // prompt tokens of one step
	graphMemory int64
	kvType      kernels.DType
	// packed says that weights are copied, as 16-bit tiles of 16 rows. Otherwise
	// they are read where the file is mapped, and take nothing.
	packed bool
	// block is what an allocation is rounded to; smaller ones share one.
	block int64
	// execBytes is what a captured graph takes, and nodeBytes each of its nodes beside.
	execBytes, nodeBytes int64
	// staging is what loading takes beside the weights: parts that are being packed.
	staging int64
	// overhead is taken before anything is loaded: context, kernels, libraries.
	overhead int64
}

// hostProfile is this machine's processors. A chunk of 64 tokens takes about as
// long as the largest batch's decode step, so that neither holds up the other.
var hostProfile = profile{kind: "host", maxBatch: 64, chunk: 64, graphMemory: 64 << 20, block: 1}

// gpuProfile is a GPU. Its overhead is more than the 526 MiB of a context, and
// the kernels', as they were measured on an H200; a generator measures its own.
var gpuProfile = profile{kind: "cuda", maxBatch: 64, chunk: 512, graphMemory: 1 << 30, kvType: kernels.BF16, packed: true,
	block: 2 << 20, execBytes: 109_600, nodeBytes: 2_470, staging: kernels.StagingBytes, overhead: 640 << 20}

// planner sizes the memory of one model on one kind of device.
type planner struct {
	config  model.Config
	profile profile
	opts    config.Options
}

// sizes is what a model takes with so much context and so many sequences, in bytes.
type sizes struct {
	context, batch int
	longest        int64 // KV pages of one sequence of that context
	pageBytes      int64
	pages          int64 // KV pages, without the trash page
	reserve        int64 // places past the batch, each for a user that holds none
	kept           int64 // KV pages kept with each of these places
	weights        []weightSize
	loading        int64 // while weights are packed, beside them
	arena          int64 // activations, slots, rings
	startGraphs    int   // captured at start
	graphsAtStart  int64 // what those take
	graphs         int64 // what all graphs may take
	overhead       int64
}

// weightSize is what the weights of one kind take.
type weightSize struct {
	kind              model.TensorKind
	parameters, bytes int64
}

// weightBytes is what all weights take.
func (s sizes) weightBytes() (n int64) {
	for _, w := range s.weights {
		n += w.bytes
	}
	return n
}

// kvPool is what the pool takes, and the page that padding writes to.
func (s sizes) kvPool() int64 { return (s.pages + 1) * s.pageBytes }

// fixed is what is taken whatever the pool and the graphs are.
func (s sizes) fixed() int64 { return s.overhead + s.weightBytes() + s.arena }

// total is the most that is ever taken. While weights are loaded there is no pool yet.
func (s sizes) total() int64 {
	return s.overhead + s.weightBytes() + max(s.loading, s.arena+s.kvPool()+s.graphs)
}

// atStart is what is taken when the generator is ready.
func (s sizes) atStart() int64 { return s.fixed() + s.kvPool() + s.graphsAtStart }

// places is how many sequences run at once at most, those of the reserve included.
func (s sizes) places() int { return s.batch + int(s.reserve) }

// most is how many pages there is a use for: the whole context for every sequence of
// the batch, and beside it what the reserve keeps.
func (s sizes) most() int64 { return s.longest*int64(s.batch) + s.reserve*s.wanted() }

// wanted is how many pages are kept with each place of the reserve if there is room.
func (s sizes) wanted() int64 { return min(s.longest, reserveTokens/pageTokens) }

// keep divides the pages: the reserve takes at most an eighth of them, or what the
// batch has no use for, and leaves one longest sequence its own.
func (s sizes) keep() int64 {
	spare := min(max(s.pages/8, s.pages-s.longest*int64(s.batch)), s.pages-s.longest)
	return min(s.wanted(), max(0, spare)/s.reserve)
}

// full tells whether every sequence of the batch may have the whole context at once.
func (s sizes) full() bool { return s.pages >= s.most() }

// serves tells whether one sequence may have the whole context.
func (s sizes) serves() bool { return s.pages >= s.longest }

// reserveTokens is how long a request is that a place of the reserve holds pages for.
const reserveTokens = 1024

// reservePlaces is how many places are kept beside a batch for further users.
func reservePlaces(batch int) int { return min(max(batch/16, 1), 4) }

// unlimited is a budget that holds everything.
const unlimited = int64(1) << 60

// size fills budget bytes, overhead included: first weights and arena, then graphs
// up to a quarter of what is left, then the KV pool.
func (p planner) size(context, batch int, budget int64) sizes {
	s := sizes{context: context, batch: batch, overhead: p.profile.overhead, loading: p.profile.staging}
	s.reserve = int64(reservePlaces(batch))
	s.longest = int64((context + pageTokens - 1) / pageTokens)
	s.weights = p.weights(context)
	memory := p.stepMemory(context, batch)
	s.arena, s.pageBytes = memory.taken(), memory.page
	spare := max(0, budget-s.fixed())
	s.graphs = min(p.profile.graphMemory, spare/4)
	if p.opts.GraphMemory > 0 {
		s.graphs = p.opts.GraphMemory
	}
	s.startGraphs, s.graphsAtStart = p.startGraphs(context, batch)
	s.graphsAtStart = min(s.graphs, s.graphsAtStart)
	if p.opts.MaxGraphs == 0 {
		s.graphs = 0
	}
	s.pages = max(0, min((spare-s.graphs)/s.pageBytes-1, s.most()))
	s.kept = s.keep()
	return s
}

// weights is what each kind of weight takes.
func (p planner) weights(context int) (all []weightSize) {
	kinds := []model.TensorKind{model.EmbeddingTensor, model.AttentionTensor, model.FeedForwardTensor, model.NormTensor, model.HeadTensor}
	taken := map[model.TensorKind]*meter{}
	parameters := map[model.TensorKind]int64{}
	for _, kind := range kinds {
		taken[kind] = &meter{block: p.profile.block}
	}
	for _, t := range p.config.Tensors() {
		parameters[t.Kind] += t.Elements()
		for _, rows := range t.Weights() {
			taken[t.Kind].add(p.weight(t, rows))
		}
	}
	turns := p.config
	turns.Context = context
	taken[model.NormTensor].add(turns.RoPEBytes())
	for _, kind := range kinds {
		all = append(all, weightSize{kind, parameters[kind], taken[kind].taken()})
	}
	return all
}

// weight is what a weight of so many rows of a tensor takes.
func (p planner) weight(t model.TensorSpec, rows int) int64 {
	switch {
	case len(t.Shape) < 2:
		return 4 * t.Elements()
	case !p.profile.packed:
		return 0
	}
	return kernels.PackedBytes(rows, t.Shape[1])
}

// stepMemory allocates step memory from a meter, so the plan counts what the real allocator takes.
func (p planner) stepMemory(context, batch int) *meter {
	m := &meter{block: p.profile.block}
	c := p.config
	c.Context = context
	places := batch + reservePlaces(batch)
	_, err := (&model.Model{Config: c}).NewStepMemory(m, model.Geometry{MaxRows: max(p.chunk(context, batch), places), MaxBatch: places,
		Context: context, PageTokens: pageTokens, Pages: 0, RingSlots: engine.RingSlots, KVType: p.profile.kvType})
	if err != nil {
		panic(err) // a meter refuses nothing
	}
	m.page = kernels.KV{DType: p.profile.kvType, PageTokens: pageTokens, Layers: c.Layers, Heads: c.KVHeads, HeadDim: c.HeadDim}.PageBytes()
	m.remove(m.page) // the trash page is counted with the pool
	return m
}

// startGraphs is how many graphs are captured at start, and what they take: a node
// for each kernel of a pass, at most ten a layer.
func (p planner) startGraphs(context, batch int) (n int, bytes int64) {
	counts, chunk := p.opts.Precapture, p.chunk(context, batch)
	if counts == nil {
		counts = graphs.DefaultCounts(chunk)
	}
	n = min(len(graphs.Lattice(counts, chunk, batch, batch+reservePlaces(batch))), p.opts.MaxGraphs)
	return n, int64(n) * (p.profile.execBytes + int64(10*p.config.Layers+8)*p.profile.nodeBytes)
}

// meter is a device's memory that only counts.
type meter struct {
	device.Memory
	block int64
	large int64 // allocations of at least half a block, each rounded to blocks
	small int64 // all others
	page  int64 // bytes of a KV page
}

func (m *meter) rounded(bytes int64) (large, small int64) {
	if 2*bytes >= m.block {
		return (bytes + m.block - 1) / m.block * m.block, 0
	}
	const alignment = 512
	return 0, (bytes + alignment - 1) / alignment * alignment
}

func (m *meter) add(bytes int64) {
	large, small := m.rounded(bytes)
	m.large, m.small = m.large+large, m.small+small
}

func (m *meter) remove(bytes int64) {
	large, small := m.rounded(bytes)
	m.large, m.small = m.large-large, m.small-small
}

// taken is what all of it takes.
func (m *meter) taken() int64 { return m.large + (m.small+m.block-1)/m.block*m.block }

// Alloc counts.
func (m *meter) Alloc(bytes int64) (device.Buffer, error) {
	m.add(bytes)
	return device.NewBuffer(1, 1, bytes), nil
}

// Uncleared counts.
func (m *meter) Uncleared(bytes int64) (device.Buffer, error) { return m.Alloc(bytes) }

// Load counts.
func (m *meter) Load(data []byte) (device.Buffer, error) { return m.Alloc(int64(len(data))) }

// Pinned counts nothing: it is the host's memory.
func (m *meter) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	return device.NewBuffer(1, 1, bytes), nil, nil
}

// choose takes the context and the batch that the flags ask for, within the
// model's and the device's.
func (p planner) choose() (context, batch int, err error) {
	context, batch = p.config.Context, p.profile.maxBatch
	if p.opts.MaxSeqLen > context {
		return 0, 0, fmt.Errorf("--max-seq-len %d is above the model's context of %d", p.opts.MaxSeqLen, context)
	}
	if p.opts.MaxSeqLen > 0 {
		context = p.opts.MaxSeqLen
	}
	if context < 2 {
		return 0, 0, fmt.Errorf("a context of %d token holds no prompt and completion: raise --max-seq-len", context)
	}
	if p.opts.MaxBatch > 0 {
		batch = p.opts.MaxBatch
	}
	return context, batch, nil
}

// chunk is how many prompt tokens a step has at most: no more than all sequences hold.
func (p planner) chunk(context, batch int) int { return min(p.profile.chunk, context*batch) }

// plan sizes the engine for budget bytes, overhead included. The error says what to
// lower where that holds not even one sequence.
func (p planner) plan(budget int64) (sizes, engine.Options, error) {
	context, batch, err := p.choose()
	if err == nil && p.profile.packed {
		err = kernels.CheckPacked(p.config.HeadDim, p.config.Hidden, p.config.Inner)
	}
	if err != nil {
		return sizes{}, engine.Options{}, err
	}
	s := p.size(context, batch, budget)
	o := engine.Options{Context: context, MaxBatch: batch, Reserve: int(s.reserve), MaxQueue: protocol.MaxQueue,
		Chunk: p.chunk(context, batch), PageTokens: pageTokens, Pages: int(s.pages), ReservePages: int(s.kept),
		KVType: p.profile.kvType, Precapture: p.opts.Precapture,
		MaxGraphs: p.opts.MaxGraphs, GraphMemory: s.graphs, NoRoller: p.opts.Roller == "off"}
	return s, o, p.fits(s, budget)
}

// fits returns an error that says what to lower where s does not serve.
func (p planner) fits(s sizes, budget int64) error {
	needs := s
	needs.pages = s.longest
	if s.serves() && s.overhead+s.weightBytes()+s.loading <= budget {
		return nil
	}
	if s.serves() {
		return fmt.Errorf("%w: loading the weights needs %s and %s are to be had: free memory, or serve a smaller model",
			config.ErrNoRoom, gib(s.overhead+s.weightBytes()+s.loading), gib(budget))
	}
	return fmt.Errorf("%w: one sequence of %d tokens needs %s and %s are to be had: %s", config.ErrNoRoom, s.context, gib(needs.total()), gib(budget), p.advice(s, budget))
}

// advice is what to lower so that one sequence fits.
func (p planner) advice(s sizes, budget int64) string {
	serves := func(batch int) func(context int) bool {
		return func(context int) bool { return p.size(context, batch, budget).serves() }
	}
	if n := largest(s.context, serves(s.batch)); n >= 2 {
		return fmt.Sprintf("lower --max-seq-len to %d", n)
	}
	if n := largest(s.context, serves(1)); n >= 2 {
		return fmt.Sprintf("lower --max-batch to 1 and --max-seq-len to %d", n)
	}
	if p.opts.GraphMemory > 0 {
		return "lower --graph-memory"
	}
	if !p.profile.packed {
		return "free memory, or serve a smaller model"
	}
	return fmt.Sprintf("free memory, or serve a smaller model: the weights alone take %s", gib(s.weightBytes()))
}

// largest is the greatest n of 1 to most that ok holds for, or 0. What holds for n
// holds for all below it.
func largest(most int, ok func(n int) bool) int {
	low, high := 0, most
	for low < high {
		middle := low + (high-low+1)/2
		if ok(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// gib prints bytes for people.
func gib(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
