//go:build cuda

package cudatest

import (
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/internal/tune"
)

// clusterSamplings are the ways to sample that clusters of blocks divide differently.
func clusterSamplings(vocab int) []kernels.Sampling {
	return []kernels.Sampling{
		{},
		{Logprobs: kernels.MaxTop, RepeatPenalty: 1.3},
		{Temperature: 1, TopP: 1},
		{Temperature: 0.7, TopK: int32(min(vocab, 40)), TopP: 1, Logprobs: 5},
		{Temperature: 3, TopK: int32((vocab + 1) / 2), TopP: 0.9},
		{Temperature: 0.5, TopP: 0.3, MinP: 0.05},
		{Temperature: 1.2, TopK: 100, TopP: 0.8, MinP: 0.02, RepeatPenalty: 1.2, PresencePenalty: 0.3,
			FrequencyPenalty: 0.2, Biases: biasesOf(min((vocab+6)/7, 300), 2), Masked: true, Logprobs: 3},
		{PresencePenalty: 0.5, FrequencyPenalty: 0.1, Biases: biasesOf(1, 50), Logprobs: 1},
		{Masked: true},
	}
}

// clusterLogits returns n rows of logits, by turns all different, with ties, with equals alone, with infinities, with NaN,
// and with nothing that can be drawn.
func (b *both) clusterLogits(n, vocab int) []float32 {
	logits := b.normal(n*vocab, 3) // truncated to bfloat16, so that there are ties
	for row := range n {
		l := logits[row*vocab : (row+1)*vocab]
		for i := range l {
			switch row % 6 {
			case 0:
				l[i] += b.r.Float32()
			case 2:
				l[i] = float32(i % 3)
			case 3:
				if b.r.IntN(3) == 0 {
					l[i] = float32(math.Inf(-1))
				}
			case 4:
				if b.r.IntN(50) == 0 {
					l[i] = float32(math.NaN())
				}
			case 5:
				l[i] = float32(math.Inf(-1))
			}
		}
	}
	return logits
}

// recordBits returns all that a record says of the result, floats as bits.
func recordBits(r kernels.Record) []uint32 {
	bits := []uint32{uint32(r.Token), math.Float32bits(r.Logprob)}
	for _, a := range r.Top {
		bits = append(bits, uint32(a.Token), math.Float32bits(a.Logprob))
	}
	return bits
}

// A cluster of blocks for a row gives the bits that one block gives, with each way to sample, any logits, and padding.
func TestCUDASampleCluster(t *testing.T) {
	defer func(least int) { tune.LeastClusterVocab = least }(tune.LeastClusterVocab)
	for _, vocab := range []int{4, 20, 1000, 1028, 8192, 8196, 32000, 128256, 151936} {
		b := newBoth(t)
		for n := 1; n <= 8; n++ {
			sampling := make([]kernels.Sampling, n)
			all := clusterSamplings(vocab)
			for i := range sampling {
				sampling[i] = all[b.r.IntN(len(all))]
				sampling[i].Seed = b.r.Uint64()
			}
			d := newDrawing(b, sampling, vocab)
			d.randomMasks()
			slot, position := d.randomPositions(n)
			logits := b.clusterLogits(n, vocab)
			b.r.Shuffle(n, func(i, j int) {
				slot[i], slot[j], position[i], position[j] = slot[j], slot[i], position[j], position[i]
			})
			var records [2][]kernels.Record
			var tokens [2][]int32
			for i, least := range []int{math.MaxInt, 1} {
				tune.LeastClusterVocab = least
				records[i] = d.sample(slot, position, logits, n+b.r.IntN(9-n), false)[1]
				tokens[i] = read[int32](b, 1, d.slots[1].Token)
			}
			for i := range n {
				if one, cluster := recordBits(records[0][i]), recordBits(records[1][i]); !slices.Equal(one, cluster) {
					t.Fatalf("%d tokens, sample %d of %d, %+v: %x of a cluster, %x of a block", vocab, i, n,
						sampling[slot[i]], cluster, one)
				}
			}
			if !slices.Equal(tokens[0], tokens[1]) {
				t.Fatalf("%d tokens, %d samples: slots have tokens %v, and %v of a block", vocab, n, tokens[1], tokens[0])
			}
		}
	}
}
