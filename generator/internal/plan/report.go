package plan

import (
	"fmt"
	"io"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// Report is a plan, in the JSON that plan --json prints. All but the counts are bytes.
type Report struct {
	Model      string         `json:"model"`
	ModelType  string         `json:"model_type"`
	Parameters int64          `json:"parameters"`
	Context    int            `json:"context"`   // most tokens of a sequence
	MaxBatch   int            `json:"max_batch"` // slots for everybody; one user never holds more
	Reserve    ReportReserve  `json:"reserve"`
	Weights    []reportWeight `json:"weights"`
	WeightSum  int64          `json:"weights_bytes"`
	Read       int64          `json:"read_bytes,omitempty"` // the part of weight_bytes in no total: pages of files, and converted weights
	Loading    int64          `json:"loading_bytes"`        // beside the weights, while they are packed
	KV         reportKV       `json:"kv"`
	Arena      int64          `json:"arena_bytes"`
	Graphs     reportGraphs   `json:"graphs"`
	Overhead   int64          `json:"overhead_bytes"` // context, kernels, libraries
	AtStart    int64          `json:"at_start_bytes"` // when the generator is ready
	Total      int64          `json:"total_bytes"`    // peak
	HostCache  int64          `json:"host_cache_bytes"`
	CacheDir   int64          `json:"cache_dir_bytes,omitempty"` // the bound of files; 0 without a directory

	VRAM           int64  `json:"vram_bytes,omitempty"`
	Limit          string `json:"limit,omitempty"`           // the limit of the host's memory that binds
	Available      int64  `json:"available_bytes,omitempty"` // left by Limit to KV cache, arena and graphs
	Fits           bool   `json:"fits"`
	Advice         string `json:"advice,omitempty"`          // if it does not fit
	LargestBatch   int    `json:"largest_batch,omitempty"`   // at this context, each sequence at full length
	LongestContext int    `json:"longest_context,omitempty"` // at this batch, each sequence at full length
	// HostCacheCut says that the host tier is smaller than asked for.
	HostCacheCut string `json:"host_cache_cut,omitempty"`
	// GPUs is how many share the model: of GPUs the report is that of each, of simulated ones that of all.
	GPUs int `json:"gpus,omitempty"`
	// HostLink says that what GPUs exchange goes through the machine's memory, as --gpu-link host has it.
	HostLink bool `json:"host_link,omitempty"`

	hostCacheNote string
}

type reportWeight struct {
	Kind       model.TensorKind `json:"kind"`
	Parameters int64            `json:"parameters"`
	Bytes      int64            `json:"bytes"`
}

type reportKV struct {
	PageTokens int   `json:"page_tokens"`
	PageBytes  int64 `json:"page_bytes"`
	Pages      int64 `json:"pages"`
	Paged      int64 `json:"paged_bytes"` // the pool
	Dense      int64 `json:"dense_bytes"` // every sequence at full length, without pages
}

// ReportReserve is the reserve that one user leaves to others.
type ReportReserve struct {
	Slots  int   `json:"places"` // past the batch
	Pages  int64 `json:"pages"`  // of all these slots
	Tokens int64 `json:"tokens"` // of a request that fits one slot's pages
}

type reportGraphs struct {
	AtStart      int   `json:"at_start"`
	AtStartBytes int64 `json:"at_start_bytes"`
	Budget       int64 `json:"budget_bytes"`
}

// ReportFor plans for a GPU of vram bytes, or for the host within vram bytes or, if vram is
// 0, within its limits. use is the weights' share of the host's memory.
func ReportFor(c model.Config, use WeightUse, o config.Options, name string, vram int64) (Report, error) {
	list, err := memlimit.Here()
	if err != nil {
		return Report{}, err
	}
	if c, err = Divide(c, o); err != nil {
		return Report{}, err
	}
	use = use.On(c.Ranks)
	p := Planner{Config: c, Profile: HostProfile, Options: o, Limits: list, Formats: use.Formats, Ordered: use.Ordered,
		Draft: use.Draft}
	if o.Device != "host" {
		p.Profile = GPUProfile
	}
	if o.Device != "host" || vram > 0 {
		return NewReport(p, name, vram)
	}
	b := HostBudget(list, use)
	r, err := NewReport(p, name, max(1, b.Bytes))
	r.VRAM, r.Limit, r.Available = 0, b.String(), b.Bytes
	return r, b.Explain(err)
}

// NewReport plans for vram bytes, or without a bound if vram is 0. If the plan does not
// fit, it returns the report and an error that says why.
func NewReport(p Planner, name string, vram int64) (Report, error) {
	budget := vram
	if vram == 0 {
		budget = Unlimited
	}
	s, _, err := p.Plan(budget)
	if s.pageBytes == 0 {
		return Report{}, err
	}
	if !s.Serves() {
		s.Pages, s.kept = s.longest, 0 // the need of one sequence
	}
	r := reportOf(p, s, name)
	r.VRAM, r.Fits = vram, err == nil
	if err != nil {
		r.Advice = err.Error()
	}
	if vram > 0 {
		r.LargestBatch = largest(4096, func(batch int) bool { return p.afforded(s.context, batch, budget).full() })
		r.LongestContext = largest(p.Config.Context,
			func(context int) bool { return p.afforded(context, s.batch, budget).full() })
	}
	return r, err
}

func reportOf(p Planner, s Sizes, name string) Report {
	c := p.Config
	r := Report{Model: name, ModelType: c.Name, Parameters: c.Parameters(), Context: s.context, MaxBatch: s.batch,
		WeightSum: s.WeightBytes() + s.ReadBytes(), Read: s.ReadBytes(), Loading: s.loading, Arena: s.Arena, Overhead: s.Overhead,
		AtStart: s.AtStart(), Total: s.Total(), HostCache: s.HostCache,
		KV: reportKV{PageTokens: pageTokens, PageBytes: s.pageBytes, Pages: s.Pages, Paged: s.KVPool(),
			Dense: s.pageBytes / pageTokens * int64(s.context) * int64(s.slots())},
		Reserve: ReportReserve{Slots: int(s.reserve), Pages: s.reserve * s.kept, Tokens: s.kept * pageTokens},
		Graphs:  reportGraphs{AtStart: s.StartGraphs, AtStartBytes: s.GraphsAtStart, Budget: s.Graphs}}
	r.hostCacheNote = "of this machine's memory, beside the totals: pages that leave the GPU"
	if !p.Profile.Packed {
		r.hostCacheNote = "pages that leave the KV cache"
	} else if cut := p.HostCacheCut(s); cut != nil {
		r.hostCacheNote, r.HostCacheCut = cut[0], cut[0]
	}
	r.GPUs = c.Ranks
	r.HostLink = c.Ranks > 1 && p.Options.GPULink == "host"
	if p.Options.CacheDir != "" {
		r.CacheDir = p.Options.CacheDirBytes
	}
	for _, w := range s.weights {
		r.Weights = append(r.Weights, reportWeight{w.kind, w.parameters, w.bytes + w.read})
	}
	return r
}

// fits says whether a plan fits.
func fits(does bool) string {
	if does {
		return "it fits"
	}
	return "it does not fit"
}

// Print writes the report as a table.
func (r Report) Print(w io.Writer) {
	line := func(name string, bytes int64, more string, args ...any) {
		fmt.Fprintf(w, "  %-24s %12s   %s\n", name, Size(bytes), fmt.Sprintf(more, args...))
	}
	fmt.Fprintf(w, "%s (%s), %d parameters, %d sequences of up to %d tokens\n",
		r.Model, r.ModelType, r.Parameters, r.MaxBatch, r.Context)
	switch {
	case r.GPUs > 1 && r.Limit == "":
		fmt.Fprintf(w, "  on each of %d GPUs that share it:\n", r.GPUs)
		if r.HostLink {
			line("exchanges, in host memory", device.InboxBytes*int64(r.GPUs), "several times slower than peer access")
		}
	case r.GPUs > 1:
		fmt.Fprintf(w, "  on %d simulated GPUs that share it, together:\n", r.GPUs)
	}
	for _, k := range r.Weights {
		line(string(k.Kind), k.Bytes, "%d parameters", k.Parameters)
	}
	if r.Read > 0 {
		line("weights", r.WeightSum, "%s of it are in no total: pages of files, and converted weights", Size(r.Read))
	} else {
		line("weights", r.WeightSum, "and %s beside them while they are loaded", Size(r.Loading))
	}
	line("KV cache, paged", r.KV.Paged, "%d pages of %d tokens and a trash page, %d bytes each",
		r.KV.Pages, r.KV.PageTokens, r.KV.PageBytes)
	line("  dense", r.KV.Dense, "every sequence at full length, without pages")
	line("  for further users", r.Reserve.Pages*r.KV.PageBytes,
		"of it: %d pages and %d slots that one user cannot take, for requests of up to %d tokens",
		r.Reserve.Pages, r.Reserve.Slots, r.Reserve.Tokens)
	line("arena", r.Arena, "activations, slots, workspaces of kernels")
	line("graphs", r.Graphs.Budget, "at most; %s of it at start, for %d", Size(r.Graphs.AtStartBytes), r.Graphs.AtStart)
	line("host cache", r.HostCache, "%s", r.hostCacheNote)
	if r.CacheDir > 0 {
		line("cache directory", r.CacheDir, "of the disk, at most: pages that outlive a restart")
	}
	if r.Limit == "" {
		line("context and libraries", r.Overhead, "assumed, from an H200; a generator measures its own")
	}
	line("total at start", r.AtStart, "")
	line("total at most", r.Total, "")
	if r.Limit != "" {
		line("available", r.Available, "%s; the bound is %s", fits(r.Fits), r.Limit)
	}
	if r.VRAM > 0 {
		line("memory", r.VRAM, "%s", fits(r.Fits))
		fmt.Fprintf(w, "largest batch at %d tokens, each at full length: %d\n", r.Context, r.LargestBatch)
		fmt.Fprintf(w, "longest context of %d sequences, each at full length: %d\n", r.MaxBatch, r.LongestContext)
	}
}
