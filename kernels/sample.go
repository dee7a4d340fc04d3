package kernels

import (
	"encoding/binary"
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// MaxTop is the largest number of alternatives in a record.
const MaxTop = 20

// PenaltyWindow is the number of a sequence's last tokens, of prompt and completion, that the
// repeat penalty applies to.
const PenaltyWindow = 64

// Sample draws the next token of each sampled row and publishes a record of it. It applies to
// the logits l of the row, in this order:
//
//	penalty      l_i /= p if l_i > 0, else l_i *= p, once for each token i of the window
//	             (Keskar et al., "CTRL", 2019)
//	presence     l_i -= p for each token i of the completion so far
//	frequency    l_i -= p * n for each token i that occurs n times in the completion so far
//	bias         l_i += b for the tokens with a bias
//	mask         l_i = -inf for all tokens that the row's mask does not allow
//	temperature  l_i /= t; t = 0 takes the largest l, the lowest id among equals
//	top_k        keeps the k largest, lower ids first among equals
//	top_p        with p = softmax(l), keeps the fewest most probable with a sum of at least top_p
//	min_p        keeps p_i >= min_p * max p
//
// The token's own random number selects from the distribution that remains. The reported
// log-probabilities are those of the model's logits, before any of this.
//
// If a mask allows no token, token 0 is drawn. The caller has to end the sequence instead.
type Sample struct {
	Logits  device.Buffer // float32 [N][Vocab]
	Rows    Rows
	Slots   Slots
	Records device.Buffer // out: int32 [RingSlots][MaxSamples][RecordWords], the record ring
	Edited  device.Buffer // float32 [N][Vocab], workspace of a GPU: logits after penalties, biases and mask

	T, N, Vocab           int
	RingSlots, MaxSamples int
	// Queries, if it is more than 0, is that of a verify pass, whose rows come in groups as [Accept] describes: row i of
	// a group is drawn within mask i of its slot. The tokens are left in Rows.Drawn and not in the slots: Accept does
	// that.
	Queries int
}

// RecordWords is the length of a record in int32 words: step number (2 words), slot, generation,
// count, token, log-probability (float32 bits), number of alternatives, then MaxTop times
// {token, log-probability}.
const RecordWords = 8 + 2*MaxTop

// Record is the result of a step for one sample, as the host reads it.
type Record struct {
	Step       uint64
	Slot       int32
	Generation int32
	// Count is 1. In a verify pass, in the first record of a sequence, it is how many of the sequence's records in this
	// step are results.
	Count   int32
	Token   int32
	Logprob float32
	Top     []Alternative
}

// Alternative is one of the most probable tokens at a position.
type Alternative struct {
	Token   int32
	Logprob float32
}

// DecodeRecord decodes a record of RecordWords little-endian words into r. It reuses r.Top.
func DecodeRecord(record []byte, r *Record) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(record[4*i:]) }
	r.Step = uint64(word(0)) | uint64(word(1))<<32
	r.Slot, r.Generation, r.Count, r.Token = int32(word(2)), int32(word(3)), int32(word(4)), int32(word(5))
	r.Logprob = math.Float32frombits(word(6))
	r.Top = r.Top[:0]
	for i := range int(min(word(7), MaxTop)) {
		r.Top = append(r.Top, Alternative{int32(word(8 + 2*i)), math.Float32frombits(word(9 + 2*i))})
	}
}

// Kernel returns "sample".
func (Sample) Kernel() string { return "sample" }

// Check compares dimensions.
func (o Sample) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries > max(o.Slots.Masks, 1) {
		return fmt.Errorf("%w: groups of %d rows with %d masks of a slot", device.ErrBadShape, o.Queries, o.Slots.Masks)
	}
	if o.Queries > 0 {
		if err := checkBuffers(need{"drawn tokens", o.Rows.Drawn, o.N}); err != nil {
			return err
		}
	}
	return checkBuffers(need{"logits", o.Logits, o.N * o.Vocab}, need{"samples", o.Rows.Sample, o.N},
		need{"records", o.Records, o.RingSlots * o.MaxSamples * RecordWords}, need{"number", o.Rows.Number, 2},
		need{"edited logits", o.Edited, o.N * o.Vocab},
		need{"masks", o.Slots.Mask, o.Slots.Count * max(o.Slots.Masks, 1) * MaskWords(o.Vocab)},
		need{"biases", o.Slots.Bias, o.Slots.Count * biasWords})
}

// Host samples on the host.
func (o Sample) Host(h *device.Host) {
	logits, samples, number := h.Float32(o.Logits), h.Int32(o.Rows.Sample), h.Int32(o.Rows.Number)
	slots, positions := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position)
	records := h.Int32(o.Records)[int(uint32(number[0])%uint32(o.RingSlots))*o.MaxSamples*RecordWords:]
	h.For(o.N, o.N*o.Vocab*samplingCost, func(begin, end int) {
		d := draws.Get().(*draw)
		defer draws.Put(d)
		for i := begin; i < end; i++ {
			if row := samples[i]; row >= 0 {
				mask := o.mask(h, slots[row], i)
				record := records[i*RecordWords:][:RecordWords]
				if h.Rank() > 0 { // all ranks share the ring, and draw the same tokens
					record = d.record[:]
				}
				token := o.one(h, d, logits[i*o.Vocab:(i+1)*o.Vocab], mask, slots[row], positions[row], record)
				if o.Queries > 0 {
					h.Int32(o.Rows.Drawn)[i] = token
				} else {
					h.Int32(o.Slots.Token)[slots[row]] = token
				}
			}
		}
	})
	if h.Rank() > 0 {
		return
	}
	for i := range o.N {
		if samples[i] >= 0 {
			copy(records[i*RecordWords:], number[:2])
		}
	}
}

// samplingCost is the cost of a logit in multiply-adds: mostly an exponential.
const samplingCost = 64

// mask returns the mask of sample i, which is of a sequence in slot.
func (o Sample) mask(h *device.Host, slot int32, i int) []uint32 {
	words := MaskWords(o.Vocab)
	at := int(slot) * max(o.Slots.Masks, 1)
	if o.Queries > 0 {
		at += i % o.Queries
	}
	return h.Uint32(o.Slots.Mask)[at*words:][:words]
}

// one samples one row, writes its record except for the step number, and returns the token.
func (o Sample) one(h *device.Host, d *draw, logits []float32, mask []uint32, slot, position int32,
	out []int32) (token int32) {
	params := h.Int32(o.Slots.Params)[int(slot)*ParamWords:][:ParamWords]
	s, biases := readSampling(params[2:])
	d.biases = readBiases(d.biases[:0], h.Int32(o.Slots.Bias)[int(slot)*biasWords:][:2*biases])
	s.Biases = d.biases
	history := h.Int32(o.Slots.History)[int(slot)*o.Slots.Context:][:position+1]
	token = d.token(logits, s, Past{history, int(params[1]), mask})
	norm := vec.LogSumExp(logits)
	out[2], out[3], out[4], out[5] = slot, params[0], 1, token
	out[6] = int32(math.Float32bits(float32(float64(logits[token]) - norm)))
	out[7] = min(s.Logprobs, MaxTop, int32(len(logits)))
	for i, c := range d.top(logits, int(out[7])) {
		out[8+2*i] = c.id
		out[9+2*i] = int32(math.Float32bits(float32(float64(c.logit) - norm)))
	}
	return token
}
