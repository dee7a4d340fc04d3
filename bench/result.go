package bench

import (
	"encoding/json"
	"fmt"
	"os"

	"reel.internal/reel/client"
)

// Result is the result of a command.
type Result interface {
	// Tables returns tables for people.
	Tables() []Table
	// Metrics returns figures for comparisons, with a value for each run.
	Metrics() []Metric
	// Charts returns charts; nil if there are none.
	Charts() []Chart
	// Header returns the common first part.
	Header() *Head
}

// Head is the common first part of all results.
type Head struct {
	Kind       string     `json:"kind"` // latency, throughput, arrivals, chat, startup, roll, ops or reported
	Provenance Provenance `json:"provenance"`
	// Peers are the other servers measured: model and address by name.
	Peers    map[string]string `json:"peers,omitempty"`
	Warnings []string          `json:"warnings,omitempty"` // reasons to trust figures less
}

// notePeers records the models and addresses of the targets that are peers.
func (h *Head) notePeers(targets []Target) {
	for _, t := range targets {
		if p, ok := t.(*peer); ok {
			if h.Peers == nil {
				h.Peers = map[string]string{}
			}
			h.Peers[p.name] = p.model + " at " + p.url
		}
	}
}

// Header returns h.
func (h *Head) Header() *Head { return h }

func (h *Head) warn(text string) {
	if text != "" {
		h.Warnings = append(h.Warnings, text)
	}
}

// Metric is a figure of a result, measured several times.
type Metric struct {
	Name   string // with the row's settings, such as latency/reel/prompt=50/ttft
	Unit   string // ms, tok/s, …
	Higher bool   // higher is better
	Values []float64
}

// Memory is the device's memory after a measurement, in bytes.
type Memory struct {
	Used    int64 `json:"used"` // on cuda by all programs, on host by the generator
	Total   int64 `json:"total"`
	Weights int64 `json:"weights"`
	KV      int64 `json:"kv"`
	Graphs  int64 `json:"graphs"`
}

// MemoryOf returns the memory that a generator's status reports.
func MemoryOf(s *client.Status) Memory {
	return Memory{
		Used: s.Machine.MemoryUsed, Total: s.Machine.MemoryTotal,
		Weights: s.Shape.WeightBytes, KV: s.KV.Bytes, Graphs: s.Graphs.Bytes,
	}
}

// kinds has a constructor for each kind of result.
var kinds = map[string]func() Result{
	"latency":    func() Result { return &Latency{} },
	"throughput": func() Result { return &Throughput{} },
	"arrivals":   func() Result { return &Arrivals{} },
	"startup":    func() Result { return &Startup{} },
	"roll":       func() Result { return &Roll{} },
	"chat":       func() Result { return &Chat{} },
	"speculate":  func() Result { return &Speculate{} },
	"ops":        func() Result { return &Ops{} },
	"reported":   func() Result { return &Reported{} },
}

// ReadResult reads a result from a JSON file. Errors are those of the file, and ErrOptions
// if it contains no result.
func ReadResult(path string) (Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var h Head
	err = json.Unmarshal(b, &h)
	make := kinds[h.Kind]
	if err == nil && make == nil {
		err = fmt.Errorf("its kind is %q", h.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no result of reel-bench --json: %w", ErrOptions, path, err)
	}
	r := make()
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrOptions, path, err)
	}
	return r, nil
}
