//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"reel/generator/internal/config"
	"reel/generator/internal/memlimit"
	"reel/generator/internal/model"
)

// planCommand says what a model takes on a GPU, which need not be there.
func (p *program) planCommand() *cobra.Command {
	var o config.Options
	var vram int64
	var asJSON bool
	all := append(config.Settings(&o), config.NewBytes("vram", "memory of the GPU, as in 24GiB (0: as much as is needed)", &vram))
	settings := config.Pick(all, "model", "device", "max-seq-len", "max-batch", "graph-memory", "max-graphs", "precapture", "vram")
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what a model takes of a GPU's memory, without a GPU, or of this machine's",
		Long: "plan reads config.json, and the weights' headers where they are there, and prints what weights, KV\n" +
			"cache, arena, graphs and the context take; with --vram also the largest batch and the longest\n" +
			"context that fit. With --device host it plans for this machine's processors, and says which limit\n" +
			"binds: free memory, a cgroup's or an rlimit. Exit code 78 where not even one sequence fits; then it\n" +
			"says what to lower.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.ReadEnvironment(p.env, cmd.Flags().Changed, settings); err != nil {
				return err
			}
			return printPlan(p.stdout, o, vram, asJSON)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// report is a plan as plan --json prints it. All but the counts are bytes.
type report struct {
	Model      string         `json:"model"`
	ModelType  string         `json:"model_type"`
	Parameters int64          `json:"parameters"`
	Context    int            `json:"context"`   // tokens of a sequence at most
	MaxBatch   int            `json:"max_batch"` // sequences of one user that run at once
	Reserve    reportReserve  `json:"reserve"`
	Weights    []reportWeight `json:"weights"`
	WeightSum  int64          `json:"weights_bytes"`
	Loading    int64          `json:"loading_bytes"` // beside the weights, while they are packed
	KV         reportKV       `json:"kv"`
	Arena      int64          `json:"arena_bytes"`
	Graphs     reportGraphs   `json:"graphs"`
	Overhead   int64          `json:"overhead_bytes"` // context, kernels, libraries
	AtStart    int64          `json:"at_start_bytes"` // when the generator is ready
	Total      int64          `json:"total_bytes"`    // at most, later

	VRAM           int64  `json:"vram_bytes,omitempty"`
	Limit          string `json:"limit,omitempty"`           // of the host's memory: the one that binds
	Available      int64  `json:"available_bytes,omitempty"` // that it leaves to KV cache, arena and graphs
	Fits           bool   `json:"fits"`
	Advice         string `json:"advice,omitempty"`          // where it does not fit
	LargestBatch   int    `json:"largest_batch,omitempty"`   // at this context, each sequence at full length
	LongestContext int    `json:"longest_context,omitempty"` // at this batch, each sequence at full length
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

// reportReserve is what one user leaves to others.
type reportReserve struct {
	Places int   `json:"places"` // past the batch
	Pages  int64 `json:"pages"`  // of all these places
	Tokens int64 `json:"tokens"` // of a request that fits one place's pages
}

type reportGraphs struct {
	AtStart      int   `json:"at_start"`
	AtStartBytes int64 `json:"at_start_bytes"`
	Budget       int64 `json:"budget_bytes"`
}

func printPlan(w io.Writer, o config.Options, vram int64, asJSON bool) error {
	files, name, err := modelFiles(o.Model)
	if err != nil {
		return err
	}
	c, use, err := headersOf(files)
	if err != nil {
		return cannotServe(name, err)
	}
	r, err := reportOn(c, use, o, name, vram)
	if err != nil && r.Model == "" {
		return config.Refuse(config.ErrConfig, "%w", err)
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if encoded := e.Encode(r); encoded != nil {
			return encoded
		}
	} else {
		r.print(w)
	}
	if err != nil {
		return config.Refuse(config.ErrConfig, "%s does not fit: %w", name, err)
	}
	return nil
}

// headersOf reads the config, and checks the weights' headers where there are
// weights. It leaves no file mapped.
func headersOf(files fs.FS) (c model.Config, use weightUse, err error) {
	s, err := openSource(files)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = readConfig(files)
		return c, use, err
	}
	if err != nil {
		return s.config, use, err
	}
	use = useOf(s.tensors)
	use.unmapped = s.tensors.Mapped()
	return s.config, use, s.tensors.Close()
}

// reportOn plans for a GPU of vram bytes, or for the host and its limits.
func reportOn(c model.Config, use weightUse, o config.Options, name string, vram int64) (report, error) {
	if o.Device != "host" {
		return makeReport(planner{c, gpuProfile, o}, name, vram)
	}
	p := planner{c, hostProfile, o}
	if vram > 0 {
		return makeReport(p, name, vram)
	}
	list, err := memlimit.Here()
	if err != nil {
		return report{}, err
	}
	b := hostBudget(list, use)
	r, err := makeReport(p, name, max(1, b.bytes))
	r.VRAM, r.Limit, r.Available = 0, b.String(), b.bytes
	return r, b.explain(err)
}

// makeReport plans for vram bytes, or for as many as are needed where it is 0. An
// error beside a report says why the plan does not fit.
func makeReport(p planner, name string, vram int64) (report, error) {
	budget := vram
	if vram == 0 {
		budget = unlimited
	}
	s, _, err := p.plan(budget)
	if s.pageBytes == 0 {
		return report{}, err
	}
	if !s.serves() {
		s.pages, s.kept = s.longest, 0 // what it would need
	}
	r := reportOf(p, s, name)
	r.VRAM, r.Fits = vram, err == nil
	if err != nil {
		r.Advice = err.Error()
	}
	if vram > 0 {
		r.LargestBatch = largest(4096, func(batch int) bool { return p.size(s.context, batch, budget).full() })
		r.LongestContext = largest(p.config.Context, func(context int) bool { return p.size(context, s.batch, budget).full() })
	}
	return r, err
}

func reportOf(p planner, s sizes, name string) report {
	c := p.config
	r := report{Model: name, ModelType: c.Name, Parameters: c.Parameters(), Context: s.context, MaxBatch: s.batch,
		WeightSum: s.weightBytes(), Loading: s.loading, Arena: s.arena, Overhead: s.overhead, AtStart: s.atStart(), Total: s.total(),
		KV: reportKV{PageTokens: pageTokens, PageBytes: s.pageBytes, Pages: s.pages, Paged: s.kvPool(),
			Dense: s.pageBytes / pageTokens * int64(s.context) * int64(s.places())},
		Reserve: reportReserve{Places: int(s.reserve), Pages: s.reserve * s.kept, Tokens: s.kept * pageTokens},
		Graphs:  reportGraphs{AtStart: s.startGraphs, AtStartBytes: s.graphsAtStart, Budget: s.graphs}}
	for _, w := range s.weights {
		r.Weights = append(r.Weights, reportWeight{w.kind, w.parameters, w.bytes})
	}
	return r
}

// print writes the report for people.
func (r report) print(w io.Writer) {
	line := func(what string, bytes int64, more string, args ...any) {
		fmt.Fprintf(w, "  %-24s %12s   %s\n", what, gib(bytes), fmt.Sprintf(more, args...))
	}
	fmt.Fprintf(w, "%s (%s), %d parameters, %d sequences of up to %d tokens\n", r.Model, r.ModelType, r.Parameters, r.MaxBatch, r.Context)
	for _, k := range r.Weights {
		line(string(k.Kind), k.Bytes, "%d parameters", k.Parameters)
	}
	line("weights", r.WeightSum, "and %s beside them while they are loaded", gib(r.Loading))
	line("KV cache, paged", r.KV.Paged, "%d pages of %d tokens and a trash page, %d bytes each", r.KV.Pages, r.KV.PageTokens, r.KV.PageBytes)
	line("  dense", r.KV.Dense, "every sequence at full length, without pages")
	line("  for further users", r.Reserve.Pages*r.KV.PageBytes,
		"of it: %d pages that one user cannot take, and %d places, for requests of up to %d tokens",
		r.Reserve.Pages, r.Reserve.Places, r.Reserve.Tokens)
	line("arena", r.Arena, "activations, slots, what kernels work in")
	line("graphs", r.Graphs.Budget, "at most; %s of it at start, for %d", gib(r.Graphs.AtStartBytes), r.Graphs.AtStart)
	if r.Limit == "" {
		line("context and libraries", r.Overhead, "assumed, from an H200; a generator measures its own")
	}
	line("total at start", r.AtStart, "")
	line("total at most", r.Total, "")
	if r.Limit != "" {
		line("to be had", r.Available, "fits: %t; the bound is %s", r.Fits, r.Limit)
	}
	if r.VRAM > 0 {
		line("memory", r.VRAM, "fits: %t", r.Fits)
		fmt.Fprintf(w, "largest batch at %d tokens, each at full length: %d\nlongest context of %d sequences, each at full length: %d\n",
			r.Context, r.LargestBatch, r.MaxBatch, r.LongestContext)
	}
}
