//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// perLaunch measures ops in a graph that launches them repeatedly, as a pass does. It reports the
// time of one launch, and bytes over that time.
func (b *both) perLaunch(t *testing.B, bytes float64, ops ...device.Op) {
	const times = 64
	b.onGPU(ops...)
	s := b.streams[1]
	x := b.capture(slices.Repeat(ops, times)...)
	b.must(s.Replay(x))
	b.must(s.Synchronize())
	for t.Loop() {
		b.must(s.Replay(x))
		b.must(s.Synchronize())
	}
	each := t.Elapsed().Seconds() / float64(t.N*times*len(ops))
	t.ReportMetric(each*1e6, "µs/launch")
	t.ReportMetric(bytes/each/1e9, "GB/s")
	b.must(x.Destroy())
}

// BenchmarkCUDAAttend measures attention for rows of different sequences ("decode") or of one
// sequence ("prefill"), in the shapes of Llama-2-7B and Llama-3.2-1B. It uses layers whose keys
// and values together are larger than the L2 cache.
func BenchmarkCUDAAttend(t *testing.B) {
	for _, shape := range []struct {
		name              string
		heads, kvHeads, d int
	}{{"7B", 32, 32, 128}, {"1B", 32, 8, 64}, {"Gemma 3 4B", 8, 4, 256}} {
		for _, c := range []struct {
			kind    string
			rows, n int // rows, and the positions that the last one sees
		}{{"decode", 1, 20}, {"decode", 1, 250}, {"decode", 1, 500}, {"decode", 1, 4000}, {"decode", 1, 16000},
			{"decode", 8, 256}, {"decode", 8, 1000}, {"decode", 64, 500}, {"prefill", 50, 50},
			{"prefill", 100, 100}, {"prefill", 400, 400}, {"prefill", 256, 4000}} {
			t.Run(fmt.Sprintf("%s/%s-%d-rows-%d-positions", shape.name, c.kind, c.rows, c.n), func(t *testing.B) {
				b := newBoth(t)
				own := c.kind == "decode"
				slots := 1
				if own {
					slots = c.rows
				}
				const layers = 4
				context := max(4096, c.n)
				each := (c.n + 15) / 16
				kv := kernels.KV{DType: kernels.BF16, Pages: 1 + slots*each, PageTokens: 16, Layers: layers,
					Heads: shape.kvHeads, HeadDim: shape.d}
				table, slot, position := make([]int32, (slots+1)*context/16), make([]int32, c.rows),
					make([]int32, c.rows)
				for i := range slots * each {
					table[i/each*context/16+i%each] = int32(1 + i)
				}
				for i := range c.rows {
					slot[i], position[i] = int32(i), int32(c.n-1)
					if !own {
						slot[i], position[i] = 0, int32(c.n-c.rows+i)
					}
				}
				width := shape.heads * shape.d
				values := bitsOf(b.normal(1<<20, 1)) // random values, repeated
				pool := make([]uint16, 0, int64(kv.Pages)*kv.PageBytes()/2)
				for len(pool) < cap(pool) {
					pool = append(pool, values[:min(len(values), cap(pool)-len(pool))]...)
				}
				kv.Data = b.load(1, bytesOf(pool))
				var ops []device.Op
				for layer := range layers {
					ops = append(ops, kernels.Attend{Q: b.load(1, bytesOf(b.normal(c.rows*width, 1))), KV: kv,
						Out:       b.poisoned(c.rows * width)[1],
						Workspace: b.attendWorkspace(c.rows, shape.heads, shape.d, context),
						Rows:      kernels.Rows{Slot: b.load(1, bytesOf(slot)), Position: b.load(1, bytesOf(position))},
						Slots: kernels.Slots{Count: slots + 1, Pages: context / 16, Context: context,
							BlockTable: b.load(1, bytesOf(table))},
						T: c.rows, Layer: layer, Heads: shape.heads, Class: classOf(!own),
						Scale: float32(1 / math.Sqrt(float64(shape.d)))})
				}
				b.perLaunch(t, float64(slots*c.n*shape.kvHeads*shape.d*4), ops...)
			})
		}
	}
}

// BenchmarkCUDASample measures sampling from random logits.
func BenchmarkCUDASample(t *testing.B) {
	for _, vocab := range []int{32000, 128256} {
		for name, s := range map[string]kernels.Sampling{
			"greedy": {RepeatPenalty: 1}, "greedy with 20 alternatives": {Logprobs: 20},
			"plain": {Temperature: 1, TopP: 1}, "top_k": {Temperature: 1, TopK: 40, TopP: 1},
			"top_p": {Temperature: 1, TopP: 0.9}, "all": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05,
				RepeatPenalty: 1.1},
			"edited":          {PresencePenalty: 0.5, FrequencyPenalty: 0.5, Biases: biasesOf(300, 1)},
			"masked":          {Masked: true},
			"masked, sampled": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, Masked: true},
		} {
			for _, n := range []int{1, 32, 64, 256} {
				t.Run(fmt.Sprintf("%d/%s/%d", vocab, name, n), func(t *testing.B) {
					b := newBoth(t)
					d := newDrawing(b, repeat(s, n), vocab)
					d.randomMasks()
					slot, position := d.randomPositions(n)
					results, _, err := b.g.Pinned(4 * int64(n) * kernels.RecordWords)
					b.must(err)
					defer func() { b.must(b.g.Free(results)) }()
					rows := kernels.Rows{Slot: b.load(1, bytesOf(slot)), Position: b.load(1, bytesOf(position)),
						Sample: b.load(1, bytesOf(slot)), Number: b.load(1, make([]byte, 8))}
					logits, edited := b.load(1, bytesOf(b.normal(n*vocab, 3))), b.poisoned(n * vocab)[1]
					b.perLaunch(t, float64(4*n*vocab), kernels.Sample{Logits: logits, Rows: rows, Slots: d.slots[1],
						Records: results, Edited: edited, T: n, N: n, Vocab: vocab, RingSlots: 1, MaxSamples: n})
				})
			}
		}
	}
}

// BenchmarkCUDAStage measures staging a decode step of 1 and of 64 rows, and a prefill step of
// 512.
func BenchmarkCUDAStage(t *testing.B) {
	for _, rows := range []int{1, 64, 512} {
		t.Run(fmt.Sprint(rows), func(t *testing.B) {
			b := newBoth(t)
			s := newStager(b, 64, 64, 1024, kernels.StepLayout{MaxRows: 512, MaxSamples: 64})
			var step kernels.Step
			for i := range int32(rows) {
				step.Rows = append(step.Rows, kernels.Row{Slot: i % 64, Position: i})
				if rows <= 64 {
					step.Rows[i].Position, step.Rows[i].Token = 5, kernels.FromDevice
				} else {
					step.Rows[i].Slot = 0
				}
			}
			for range stagerRing {
				s.write(step)
			}
			b.perLaunch(t, 0, s.op(1, rows, min(rows, 64)))
		})
	}
}
