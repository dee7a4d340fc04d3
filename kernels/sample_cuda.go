//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

const (
	// sampleShared and sampleClusterShared are the sizes of SampleShared and SampleCluster in sample.cu, whose clusters
	// have sampleCluster blocks.
	sampleShared, sampleClusterShared, sampleCluster = 33336, 115328, 8
	// sampleVocab is the largest vocabulary: shared memory has a bit for each token.
	sampleVocab = 1 << 19
)

// CUDA launches a block of 1,024 threads per sample, or where there are few a cluster of them. Both give the same bits.
func (o Sample) CUDA(q *cuda.Queue) error {
	if o.Vocab > sampleVocab {
		return fmt.Errorf("%w: sampling on a GPU from %d tokens, at most %d", device.ErrBadShape, o.Vocab, sampleVocab)
	}
	name, bits := "reel_sample", (o.Vocab+31)/32*4
	g := cuda.Grid{X: o.N, Threads: 1024, Shared: sampleShared + bits, Dependent: true}
	if o.clusters(q) {
		name += "_cluster"
		g.X, g.Cluster, g.Shared = sampleCluster*o.N, sampleCluster, sampleClusterShared+bits
	}
	slots := o.Slots.addresses(q)
	token := slots.token
	if o.Queries > 0 {
		token = q.Address(o.Rows.Drawn)
	}
	return cuda.Launch(q, name, g, sampleArgs{
		logits: q.Address(o.Logits), sample: q.Address(o.Rows.Sample), slot: q.Address(o.Rows.Slot),
		position: q.Address(o.Rows.Position), number: q.Address(o.Rows.Number), results: q.Address(o.Records),
		history: slots.history, params: slots.params, mask: q.Address(o.Slots.Mask), bias: q.Address(o.Slots.Bias),
		edited: q.Address(o.Edited), token: token, vocab: int32(o.Vocab),
		context: int32(o.Slots.Context), ringSlots: int32(o.RingSlots), maxSamples: int32(o.MaxSamples),
		queries: int32(o.Queries), masks: int32(max(o.Slots.Masks, 1)),
	})
}

// clusters reports whether a cluster samples each row: on Hopper and later, where clusters take half of the SMs at most.
// Its blocks copy 16 bytes at a time, so rows have to begin at a multiple of that.
func (o Sample) clusters(q *cuda.Queue) bool {
	major, _ := q.Capability()
	return major >= 9 && 2*sampleCluster*o.N <= q.SMs() && o.Vocab%4 == 0 && o.Vocab >= tune.LeastClusterVocab
}
