// Package plan decides how a device's memory is used, before anything is allocated.
package plan

import (
	"cmp"
	"fmt"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/protocol"
)

// Planner sizes the memory of one model on one kind of device.
type Planner struct {
	Config  model.Config
	Profile Profile
	Options config.Options
	// Limits are those on this machine's memory. They bound a host tier beside a GPU; nil: unknown.
	Limits []memlimit.Limit
	// Formats are those of the matrices by tensor. A tensor that is not in it counts as bfloat16.
	Formats map[string]kernels.DType
	// Ordered is a matrix in activation order; "": there is none.
	Ordered string
	// AnyFormat counts formats and dimensions that a GPU has no kernels for, instead of refusing them.
	AnyFormat bool
	// Draft is the draft model; nil: there is none.
	Draft *Draft
}

// Unlimited is a budget that no model exceeds.
const Unlimited = int64(1) << 60

// size divides budget bytes, overhead included: first weights and step memory, then graphs
// up to a quarter of the rest, then the KV pool.
func (p Planner) size(context, batch int, budget int64) Sizes {
	s := Sizes{context: context, batch: batch, Overhead: p.Profile.Overhead, loading: p.Profile.staging}
	s.reserve = int64(reserveSlots(batch))
	s.longest = int64((context + pageTokens - 1) / pageTokens)
	s.weights = append(p.weights(context), p.draftWeights(context)...)
	memory := p.stepMemory(context, batch)
	s.Arena, s.hostPage = p.together()*memory.taken(), memory.page
	s.pageBytes = s.hostPage / p.ranks() * p.together()
	if !p.Profile.Packed { // the device's memory is the host's
		s.HostCache = wholePages(max(0, p.Options.HostCache), s.hostPage)
		s.hostCacheHere = s.HostCache
	}
	spare := max(0, budget-s.fixed())
	s.Graphs = min(p.Profile.graphMemory, spare/4)
	if p.Options.GraphMemory > 0 {
		s.Graphs = p.Options.GraphMemory
	}
	s.StartGraphs, s.GraphsAtStart = p.startGraphs(context, batch)
	s.GraphsAtStart = min(s.Graphs, p.together()*s.GraphsAtStart)
	if p.Options.MaxGraphs == 0 {
		s.Graphs = 0
	}
	s.Pages = max(0, min((spare-s.varying())/s.pageBytes-1, s.most()))
	s.kept = s.keep()
	if p.Profile.Packed {
		s.HostCache = p.hostCache(p.ranks()*s.KVPool(), s.hostPage)
	}
	return s
}

// weights returns the size of each kind of weight. The RoPE table counts as a norm.
func (p Planner) weights(context int) (all []weightSize) {
	kinds := []model.TensorKind{
		model.EmbeddingTensor, model.AttentionTensor, model.FeedForwardTensor, model.RouterTensor, model.ExpertTensor,
		model.NormTensor, model.HeadTensor,
	}
	taken := map[model.TensorKind]*meter{}
	parameters, read := map[model.TensorKind]int64{}, map[model.TensorKind]int64{}
	for _, kind := range kinds {
		taken[kind] = &meter{block: p.Profile.block}
	}
	for _, t := range p.Config.Tensors() {
		parameters[t.Kind] += t.Elements()
		read[t.Kind] += p.readBytes(t)
		for _, rows := range t.Weights() {
			taken[t.Kind].add(p.weight(t, p.Config.RankRows(t, rows)))
		}
	}
	taken[model.HeadTensor].add(p.ownHead())
	c := p.Config
	c.Context = context
	taken[model.NormTensor].add(c.RoPEBytes() + c.OnesBytes())
	for _, kind := range kinds {
		if parameters[kind] > 0 || taken[kind].taken() > 0 {
			all = append(all, weightSize{kind, parameters[kind], taken[kind].taken(), read[kind]})
		}
	}
	return all
}

// weight returns the bytes of a weight made of that many rows of a tensor.
func (p Planner) weight(t model.TensorSpec, rows int) int64 {
	switch {
	case !t.Matrix():
		return 4 * t.Elements()
	case !p.Profile.Packed:
		return 0
	}
	return kernels.PackedBytes(p.format(t), rows, t.Shape[1])
}

// format returns the format of a matrix in the checkpoint.
func (p Planner) format(t model.TensorSpec) kernels.DType {
	if f, ok := p.Formats[t.Name]; ok && !(t.Unpacked && f.Quantised()) {
		return f
	}
	return kernels.BF16
}

// checkPacked returns an error for a model that a GPU has no kernels for.
func (p Planner) checkPacked() error {
	if err := p.checkDraftPacked(); err != nil {
		return err
	}
	if err := p.checkWidths(); err != nil && !p.AnyFormat {
		return err
	}
	if err := kernels.CheckOrder(p.Ordered != ""); err != nil && !p.AnyFormat {
		return fmt.Errorf("%s: %w: use --device host, or a checkpoint that was quantised with desc_act false or "+
			"static_groups true (actorder weight)", p.Ordered, err)
	}
	for _, t := range p.Config.Tensors() {
		if !t.Matrix() || p.AnyFormat {
			continue
		}
		for _, rows := range t.Weights() {
			if err := kernels.CheckPackable(p.format(t), p.Config.RankRows(t, rows), t.Shape[1]); err != nil {
				return fmt.Errorf("%s: %w%s", t.Name, err, otherFormat)
			}
		}
	}
	if err := p.Config.CheckOps(p.Formats); err != nil && !p.AnyFormat {
		return fmt.Errorf("%w%s", err, otherFormat)
	}
	return nil
}

// checkWidths returns an error for dimensions that a GPU has no kernels for.
func (p Planner) checkWidths() error {
	c := p.Config
	if l := c.Latent; l != nil {
		c.HeadDim = 0 // keys of heads are never made
		if err := kernels.CheckLatent(c.Heads, l.Nope, l.Rope, l.Value, l.Rank, l.QueryRank); err != nil {
			return err
		}
	}
	for i := range c.Layers {
		layer := c.At(i)
		if err := kernels.CheckPacked(layer.HeadDim, c.Hidden, layer.Inner); err != nil {
			return err
		}
	}
	if err := kernels.CheckPages(c.LayersKV()); err != nil {
		return err
	}
	if e := c.Experts; e != nil {
		for _, width := range []int{e.Inner, e.Shared} {
			if err := kernels.CheckPacked(c.HeadDim, c.Hidden, width); err != nil {
				return fmt.Errorf("experts: %w", err)
			}
		}
	}
	return nil
}

// otherFormat is what to do about formats that a GPU has no kernels for.
const otherFormat = ": use --device host, or the model in another format"

// stepMemory allocates step memory from a meter, so the plan counts with the real allocator.
func (p Planner) stepMemory(context, batch int) *meter {
	m := &meter{block: p.Profile.block}
	c := p.Config
	c.Context = context
	memory, err := (&model.Model{Config: c}).NewStepMemory(m, p.engineOptions(context, batch).Geometry())
	if err != nil {
		panic(err) // a meter refuses nothing
	}
	for _, kv := range memory.Pools() {
		m.remove(kv.PageBytes()) // the trash page is counted with the pool
	}
	m.page = memory.PageBytes()
	return m
}

// startGraphs returns the number of graphs captured at start and their bytes. Each kernel of
// a pass is a node of its graph.
func (p Planner) startGraphs(context, batch int) (n int, bytes int64) {
	keys := p.engineOptions(context, batch).Lattice()
	n = min(len(keys), p.Options.MaxGraphs)
	for _, k := range keys[:n] {
		nodes := layerNodes(p.Config)*p.Config.Layers + passNodes(p.Config) + p.draftNodes(k)
		bytes += p.Profile.execBytes + int64(nodes)*p.Profile.nodeBytes
	}
	return n, bytes
}

// passNodes returns the most kernels of a pass beside its layers: eight, the exchanges of logits and sampled rows, and
// what makes the inputs of layers.
func passNodes(c model.Config) int {
	n := 8
	if c.Ranks > 1 {
		n = 10
	}
	if c.PerLayer > 0 {
		n += 5 // the inputs of all layers
	}
	return n
}

// layerNodes returns the most kernels of a layer, those of a prompt: ten, and more for latents, for norms after both parts
// of a layer, for wide heads, for embeddings of layers, for shared experts and for the exchanges of several GPUs.
func layerNodes(c model.Config) int {
	n := 10
	if c.Latent != nil {
		n += 8
	}
	if c.NormsAfter {
		n += 2
	}
	if c.Wide != nil {
		n++ // attention of wide heads leaves its results unrounded
	}
	if c.PerLayer > 0 {
		n += 8 // a gate, and two projections of which each has up to three kernels, and a norm
	}
	if c.Experts != nil && c.Experts.Shared > 0 {
		n += 4
		if c.Experts.Beside {
			n += 6 // three norms, and projections that store
		}
	}
	if c.Ranks > 1 {
		n += 4
		if c.Experts != nil {
			n += 3
		}
	}
	return n
}

// choose returns the context and the batch: the flags' values, or the model's context and
// the default batch for a budget.
func (p Planner) choose(budget int64) (context, batch int, err error) {
	context = p.Config.Context
	if p.Options.MaxSeqLen > context {
		why := ""
		if reason := p.Config.ContextReason; reason != "" {
			why = ": " + reason
		}
		return 0, 0, fmt.Errorf("--max-seq-len %d is above the model's context of %d%s", p.Options.MaxSeqLen, context, why)
	}
	if p.Options.MaxSeqLen > 0 {
		context = p.Options.MaxSeqLen
	}
	if context < 2 {
		return 0, 0, fmt.Errorf("a context of %d token holds no prompt and completion: raise --max-seq-len", context)
	}
	if p.Options.MaxBatch > 0 {
		return context, p.Options.MaxBatch, nil
	}
	return context, p.defaultBatch(context, budget), nil
}

// batchTokens is the length of the sequences that the KV pool holds a default batch of, on average.
const batchTokens = 256

// defaultBatch returns the largest batch, from the profile's default in steps of 64, of which each sequence has pages
// for batchTokens tokens, or for the whole context if that is shorter. More slots than that would take memory from the
// pages that they wait for.
func (p Planner) defaultBatch(context int, budget int64) int {
	batch := p.Profile.maxBatch
	for ; batch > p.Profile.minBatch; batch -= 64 {
		s := p.afforded(context, batch, budget)
		if s.Pages >= int64(batch)*min(s.longest, batchTokens/pageTokens) {
			break
		}
	}
	return max(batch, p.Profile.minBatch)
}

// gap returns the engine's Gap.
func (p Planner) gap() time.Duration {
	if p.Options.TokenGap == config.AutoTokenGap {
		return p.Profile.gap
	}
	return p.Options.TokenGap
}

// Plan sizes the engine for budget bytes, overhead included. If not even one sequence fits,
// the error is [config.ErrNoRoom] and says which setting to lower.
func (p Planner) Plan(budget int64) (Sizes, engine.Options, error) {
	context, batch, err := p.choose(budget)
	if err == nil && p.Profile.Packed {
		err = p.checkPacked()
	}
	if err != nil {
		return Sizes{}, engine.Options{}, err
	}
	p, s := p.affordLong(context, batch, budget)
	o := p.engineOptions(context, batch)
	o.Reserve, o.Pages, o.ReservePages, o.HostCache = int(s.reserve), int(s.Pages), int(s.kept), s.HostCache
	o.GraphMemory = s.Graphs / p.together()
	if err := p.hostCacheFits(); err != nil {
		return s, o, err
	}
	return s, o, p.fits(s, budget)
}

// engineOptions returns the engine's options as far as they don't depend on the budget.
func (p Planner) engineOptions(context, batch int) engine.Options {
	draft, drafter := p.draftOptions()
	o := engine.Options{Context: context, MaxBatch: batch, Reserve: reserveSlots(batch), MaxQueue: cmp.Or(p.Options.MaxQueue, protocol.MaxQueue),
		Chunk: p.chunk(context, batch), LongChunk: p.longChunk(context, batch), Gap: p.gap(), PageTokens: pageTokens,
		KVType: p.Profile.kvType, NoWorkspaces: p.Profile.kind != GPUProfile.kind,
		Precapture: p.Options.Precapture, CacheScope: cacheScopes[p.Options.CacheScope],
		MaxGraphs: p.Options.MaxGraphs, NoRoller: p.Options.Roller == "off", Embeddings: p.Config.Embedding != nil,
		Draft: draft, DraftModel: drafter, DraftTokens: p.Options.DraftTokens,
		DraftAlways: p.Options.DraftPlan == "always", DraftWindow: p.Options.DraftWindow}
	if o.MixedRows = p.mixedRows(o); p.Profile.kind == GPUProfile.kind {
		o.MixedGraphs = 2 // fewer rows than half of the most take hardly less time there, and a start waits for each
	}
	return o
}

// drafters are the engine's by the names of --draft; by any other there is none.
var drafters = map[string]engine.DraftKind{
	protocol.DrafterOff: engine.DraftOff, protocol.DrafterLookup: engine.DraftLookup,
	protocol.DrafterGiven: engine.DraftGiven,
}

// cacheScopes are the engine's scopes by the names of --cache-scope; without a name each user's own.
var cacheScopes = map[string]engine.CacheScope{
	protocol.ScopeUser: engine.ScopeUser, protocol.ScopeAll: engine.ScopeAll, protocol.ScopeOff: engine.ScopeOff,
}

// fits returns an error that says what to lower, if s holds less than one sequence.
func (p Planner) fits(s Sizes, budget int64) error {
	needs := s
	needs.Pages = s.longest
	if s.Serves() {
		return nil
	}
	return fmt.Errorf("%w: one sequence of %d tokens needs %s and %s are available: %s",
		config.ErrNoRoom, s.context, Size(needs.Total()), Size(budget), p.advice(s, budget))
}

// advice says which setting to lower so that one sequence fits.
func (p Planner) advice(s Sizes, budget int64) string {
	serves := func(batch int) func(context int) bool {
		return func(context int) bool { return p.afforded(context, batch, budget).Serves() }
	}
	if n := p.smallerHostCache(s, budget); n != "" {
		return "lower --host-cache to " + n
	}
	if n := largest(s.context, serves(s.batch)); n >= 2 {
		return fmt.Sprintf("lower --max-seq-len to %d", n)
	}
	if n := largest(s.context, serves(1)); n >= 2 {
		return fmt.Sprintf("lower --max-batch to 1 and --max-seq-len to %d", n)
	}
	if p.Options.GraphMemory > 0 {
		return "lower --graph-memory"
	}
	if !p.Profile.Packed {
		return "free memory, or serve a smaller model"
	}
	return fmt.Sprintf("free memory, or serve a smaller model: the weights alone take %s", Size(s.WeightBytes()))
}

// largest returns the greatest n from 1 to most for which ok holds, or 0. If ok holds for n,
// it has to hold for every smaller number.
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
