package bench

import (
	"encoding/json"
	"fmt"
	"os"

	"reel/client"
)

// Result is what a command measured.
type Result interface {
	// Tables are for people.
	Tables() []Table
	// Metrics are for comparisons: a value for each run.
	Metrics() []Metric
	// Charts draw it; nil where there is nothing to draw.
	Charts() []Chart
	// Header is what every result begins with.
	Header() *Head
}

// Head begins every result.
type Head struct {
	Kind       string     `json:"kind"` // latency, throughput, startup, roll or ops
	Provenance Provenance `json:"provenance"`
	// Peers are the other servers that were measured: model and address, by name.
	Peers    map[string]string `json:"peers,omitempty"`
	Warnings []string          `json:"warnings,omitempty"` // what makes figures mean less than they seem to
}

// notePeers keeps what the targets that are peers serve.
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

// Metric is one figure of a result, measured several times.
type Metric struct {
	Name   string // with the row's settings, as in latency/reel/prompt=50/ttft
	Unit   string // ms, tok/s, …
	Higher bool   // is better
	Values []float64
}

// Memory is the device's memory after a measurement, in bytes.
type Memory struct {
	Used    int64 `json:"used"` // of the device, by all programs; on host by the generator
	Total   int64 `json:"total"`
	Weights int64 `json:"weights"`
	KV      int64 `json:"kv"`
	Graphs  int64 `json:"graphs"`
}

// MemoryOf reads a generator's status.
func MemoryOf(s *client.Status) Memory {
	return Memory{Used: s.Machine.MemoryUsed, Total: s.Machine.MemoryTotal, Weights: s.Shape.WeightBytes, KV: s.KV.Bytes, Graphs: s.Graphs.Bytes}
}

// kinds make an empty result of each kind.
var kinds = map[string]func() Result{
	"latency":    func() Result { return &Latency{} },
	"throughput": func() Result { return &Throughput{} },
	"startup":    func() Result { return &Startup{} },
	"roll":       func() Result { return &Roll{} },
	"ops":        func() Result { return &Ops{} },
}

// ReadResult reads the JSON of a result from a file. Errors: those of the file,
// and ErrOptions where it holds no result.
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
