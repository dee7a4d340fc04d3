package kernels

import (
	"math"

	"reel.internal/reel/kernels/device"
)

// Vector leaves the embedding of each sampled row, and a record of it, where the host reads them:
//
//	Vectors[i] = rmsnorm(X[row i]) = Norm ⊙ X[row i] / √(mean(X[row i]²) + Eps)
//
// It takes the place of [Head] and [Sample] in a model that is meant for embeddings. The record has count 1, token 0
// and log-probability 0, or NaN if the vector has an element that is not finite. Vectors and records of padding
// samples, which come last, are not written.
type Vector struct {
	X       device.Buffer // float32 [T][Cols]
	Index   device.Buffer // int32 [N]: the row in X of each sample, -1 for padding
	Norm    device.Buffer // float32 [Cols]
	Rows    Rows          // of the step: its samples say whose each vector is
	Slots   Slots
	Records device.Buffer // out: int32 [RingSlots][MaxSamples][RecordWords], the record ring
	Vectors device.Buffer // out: float32 [RingSlots][MaxSamples][Cols], the vector ring

	T, N, Cols            int
	RingSlots, MaxSamples int
	Eps                   float32
}

// Kernel returns "vector".
func (Vector) Kernel() string { return "vector" }

// Check compares dimensions.
func (o Vector) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	return checkBuffers(need{"x", o.X, o.T * o.Cols}, need{"row index", o.Index, o.N}, need{"norm", o.Norm, o.Cols},
		need{"samples", o.Rows.Sample, o.N}, need{"number", o.Rows.Number, 2},
		need{"records", o.Records, o.RingSlots * o.MaxSamples * RecordWords},
		need{"vectors", o.Vectors, o.RingSlots * o.MaxSamples * o.Cols})
}

// Host computes on the host.
func (o Vector) Host(h *device.Host) {
	if h.Rank() > 0 { // all ranks share the rings, and have the same vectors
		return
	}
	index, samples, number := h.Int32(o.Index), h.Int32(o.Rows.Sample), h.Int32(o.Rows.Number)
	slots, params := h.Int32(o.Rows.Slot), h.Int32(o.Slots.Params)
	x, norm := h.Float32(o.X), h.Float32(o.Norm)[:o.Cols]
	at := int(uint32(number[0])%uint32(o.RingSlots)) * o.MaxSamples
	for i := range o.N {
		row := int(index[i])
		if row < 0 {
			continue
		}
		vector := h.Float32(o.Vectors)[(at+i)*o.Cols:][:o.Cols]
		rmsNorm(vector, x[row*o.Cols:(row+1)*o.Cols], norm, o.Eps)
		record, slot := h.Int32(o.Records)[(at+i)*RecordWords:][:RecordWords], slots[samples[i]]
		clear(record)
		record[2], record[3], record[4] = slot, params[int(slot)*ParamWords], 1
		record[6] = int32(math.Float32bits(notFinite(vector)))
		copy(record, number[:2])
	}
}

// notFinite returns NaN if an element is infinite or not a number, and 0 otherwise.
func notFinite(v []float32) (sum float32) {
	for _, f := range v {
		sum += f * 0
	}
	return sum
}
