//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"reel/generator/internal/engine"
	"reel/generator/internal/model"
	"reel/kernels"
	"reel/protocol"
)

// plan chooses the engine's sizes: what the flags ask for, within the model's
// context, and a KV pool that holds every sequence at full length, or as much
// of that as the device has to spare.
func plan(c model.Config, o Options, h hardware) (engine.Options, error) {
	p := engine.Options{Context: c.Context, MaxBatch: h.maxBatch, MaxQueue: protocol.MaxQueue, Chunk: h.chunk, PageTokens: pageTokens, KVType: h.kvType,
		Precapture: o.Precapture, MaxGraphs: o.MaxGraphs, GraphMemory: h.graphMemory, NoRoller: o.Roller == "off"}
	if o.GraphMemory > 0 {
		p.GraphMemory = o.GraphMemory
	}
	if o.MaxSeqLen > c.Context {
		return p, fmt.Errorf("--max-seq-len %d is above the model's context of %d", o.MaxSeqLen, c.Context)
	}
	if o.MaxSeqLen > 0 {
		p.Context = o.MaxSeqLen
	}
	if p.Context < 2 {
		return p, fmt.Errorf("a context of %d token holds no prompt and completion: raise --max-seq-len", p.Context)
	}
	if o.MaxBatch > 0 {
		p.MaxBatch = o.MaxBatch
	}
	spare, err := h.spare()
	if err != nil {
		return p, err
	}
	p.Pages, err = pages(c, p, spare)
	return p, err
}

// pages is how many KV pages of p fit into budget bytes, up to those of a full batch.
func pages(c model.Config, p engine.Options, budget int64) (int, error) {
	page := kernels.KV{DType: p.KVType, PageTokens: p.PageTokens, Layers: c.Layers, Heads: c.KVHeads, HeadDim: c.HeadDim}.PageBytes()
	longest := int64((p.Context + p.PageTokens - 1) / p.PageTokens)
	fit := budget / page
	const gib = 1 << 30
	if fit < 1 {
		return 0, fmt.Errorf("one page of the KV cache needs %.3f GiB and %.3f GiB are to be had: free memory, or serve a smaller model",
			float64(page)/gib, float64(budget)/gib)
	}
	if fit < longest {
		return 0, fmt.Errorf("the KV cache of one sequence of %d tokens needs %.1f GiB and %.1f GiB are to be had: lower --max-seq-len to %d",
			p.Context, float64(longest*page)/gib, float64(budget)/gib, fit*int64(p.PageTokens))
	}
	return int(min(fit, longest*int64(p.MaxBatch))), nil
}

// availableMemory is the bytes that new programs can have on this machine.
func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("free memory is not known: %w", err)
	}
	defer f.Close()
	return available(f)
}

// available reads the bytes that new programs can have from /proc/meminfo.
func available(meminfo io.Reader) (int64, error) {
	for lines := bufio.NewScanner(meminfo); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
