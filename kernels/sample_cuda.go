//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

const (
	// sampleShared is the size of SampleShared in sample.cu.
	sampleShared = 33336
	// sampleVocab is the largest vocabulary: shared memory has a bit for each token.
	sampleVocab = 1 << 19
)

// CUDA launches a block of 1,024 threads per sample.
func (o Sample) CUDA(q *cuda.Queue) error {
	if o.Vocab > sampleVocab {
		return fmt.Errorf("%w: sampling on a GPU from %d tokens, at most %d", device.ErrBadShape, o.Vocab, sampleVocab)
	}
	g := cuda.Grid{X: o.N, Threads: 1024, Shared: sampleShared + (o.Vocab+31)/32*4, Dependent: true}
	slots := o.Slots.addresses(q)
	token := slots.token
	if o.Queries > 0 {
		token = q.Address(o.Rows.Drawn)
	}
	return cuda.Launch(q, "reel_sample", g, sampleArgs{
		logits: q.Address(o.Logits), sample: q.Address(o.Rows.Sample), slot: q.Address(o.Rows.Slot),
		position: q.Address(o.Rows.Position), number: q.Address(o.Rows.Number), results: q.Address(o.Records),
		history: slots.history, params: slots.params, mask: q.Address(o.Slots.Mask), bias: q.Address(o.Slots.Bias),
		edited: q.Address(o.Edited), token: token, vocab: int32(o.Vocab),
		context: int32(o.Slots.Context), ringSlots: int32(o.RingSlots), maxSamples: int32(o.MaxSamples),
		queries: int32(o.Queries), masks: int32(max(o.Slots.Masks, 1)),
	})
}
