package kernels

import (
	"encoding/binary"
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
)

// Row is a token row of a step.
type Row struct {
	Slot int32 // or NoSlot: the row is padding
	// Position of the token in its sequence, from 0, or FromDevice: the slot's length, or one more than that of the row
	// before it in the same slot.
	Position int32
	// Token is the token's id, or FromDevice: the slot's last sampled token, or FromDraft.
	Token int32
}

const (
	// FromDevice is a value that only the device knows when the host writes the descriptor, because
	// the step before may still be running.
	FromDevice = -1
	// FromDraft is a token that the pass's drafter guesses; [Stage] leaves 0 in its place.
	FromDraft = -2
	// NoSlot is the slot of a row that is padding between the rows of sequences: the trash slot.
	NoSlot = -1
)

// Init prepares a slot for a new sequence.
type Init struct {
	Slot       int32
	Generation int32 // distinguishes records of this sequence from those of the slot's last one
	Prompt     int32 // tokens of the prompt: the sampled token at this position has index 0
	Sampling   Sampling
}

// Sampling is how the tokens of a sequence are drawn; see [Sample].
type Sampling struct {
	Temperature   float32 // 0 is greedy
	TopK          int32   // 0 is off
	TopP          float32 // 1 is off
	MinP          float32 // 0 is off
	RepeatPenalty float32 // 1 is off
	Logprobs      int32   // alternatives in a record, at most MaxTop
	Seed          uint64

	PresencePenalty  float32 // 0 is off
	FrequencyPenalty float32 // 0 is off
	Biases           []Bias  // at most MaxBiases, no token twice; they lie in Slots.Bias
	Masked           bool    // only tokens of the slot's masks in Slots.Mask may be drawn
}

// PageEntry sets one entry of a slot's block table.
type PageEntry struct {
	Slot, Index, Page int32
}

// Step is a step as its descriptor states it.
type Step struct {
	Number  uint64
	Rows    []Row
	Samples []int32 // rows to sample
	Inits   []Init
	Pages   []PageEntry
}

// StepLayout is the layout of a step descriptor: int32 words, with fixed capacities.
//
//	0..7    rows, samples, inits, pages, number (2 words), 2 unused
//	then    MaxRows    × {slot, position, token}
//	        MaxSamples × {row}
//	        MaxSamples × init of initWords words
//	        MaxRows+MaxMoves × {slot, index, page}
type StepLayout struct {
	MaxRows, MaxSamples int
}

// MaxMoves is how many block table entries a step may change beside those of pages that its
// rows start.
const MaxMoves = 64

// mostEntries returns the most block table entries that a step of so many rows changes: each row may start a page.
func mostEntries(rows int) int { return rows + MaxMoves }

const (
	headWords = 8
	rowWords  = 3
	pageWords = 3
	initWords = 1 + ParamWords // the slot, then Init.Params
)

func (l StepLayout) sampleAt() int { return headWords + l.MaxRows*rowWords }
func (l StepLayout) initAt() int   { return l.sampleAt() + l.MaxSamples }
func (l StepLayout) pageAt() int   { return l.initAt() + l.MaxSamples*initWords }

// Words returns the length of a descriptor in int32 words.
func (l StepLayout) Words() int { return l.pageAt() + mostEntries(l.MaxRows)*pageWords }

// Encode writes s to dst, of Words()*4 bytes. It returns [device.ErrBadShape] if s or dst do not fit, or if s has more
// than MaxMoves pages beside one for each of its rows.
func (l StepLayout) Encode(dst []byte, s *Step) error {
	if len(s.Rows) > l.MaxRows || len(s.Samples) > l.MaxSamples || len(s.Inits) > l.MaxSamples ||
		len(s.Pages) > mostEntries(len(s.Rows)) || len(dst) < 4*l.Words() {
		return fmt.Errorf("%w: step of %d rows, %d samples, %d inits, %d pages in a layout of %d rows, %d samples",
			device.ErrBadShape, len(s.Rows), len(s.Samples), len(s.Inits), len(s.Pages), l.MaxRows, l.MaxSamples)
	}
	w := wordWriter{dst: dst}
	w.put(int32(len(s.Rows)), int32(len(s.Samples)), int32(len(s.Inits)), int32(len(s.Pages)), int32(s.Number),
		int32(s.Number>>32))
	w.at = headWords
	for _, r := range s.Rows {
		w.put(r.Slot, r.Position, r.Token)
	}
	w.at = l.sampleAt()
	w.put(s.Samples...)
	w.at = l.initAt()
	for i := range s.Inits {
		params := s.Inits[i].Params()
		w.put(s.Inits[i].Slot)
		w.put(params[:]...)
	}
	w.at = l.pageAt()
	for _, p := range s.Pages {
		w.put(p.Slot, p.Index, p.Page)
	}
	return nil
}

// wordWriter writes int32 words one after another.
type wordWriter struct {
	dst []byte
	at  int
}

func (w *wordWriter) put(words ...int32) {
	dst := w.dst[4*w.at:][:4*len(words)]
	w.at += len(words)
	for len(words) > 1 && len(dst) >= 8 { // two at once: a history has 100,000 words
		binary.LittleEndian.PutUint64(dst, uint64(uint32(words[0]))|uint64(words[1])<<32)
		words, dst = words[2:], dst[8:]
	}
	if len(words) > 0 {
		binary.LittleEndian.PutUint32(dst, uint32(words[0]))
	}
}

// Params returns the words that Stage puts into Slots.Params: generation, prompt, sampling.
func (i *Init) Params() [ParamWords]int32 {
	s := &i.Sampling
	return [ParamWords]int32{i.Generation, i.Prompt,
		int32(math.Float32bits(s.Temperature)), s.TopK, int32(math.Float32bits(s.TopP)),
		int32(math.Float32bits(s.MinP)), int32(math.Float32bits(s.RepeatPenalty)), s.Logprobs,
		int32(s.Seed), int32(s.Seed >> 32),
		int32(math.Float32bits(s.PresencePenalty)), int32(math.Float32bits(s.FrequencyPenalty)),
		int32(len(s.Biases)), word(s.Masked)}
}

// word returns 1 for true.
func word(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// readSampling is the inverse of [Init.Params] for the words of Sampling. Of the biases it returns the number.
func readSampling(w []int32) (s Sampling, biases int) {
	f := func(i int) float32 { return math.Float32frombits(uint32(w[i])) }
	return Sampling{Temperature: f(0), TopK: w[1], TopP: f(2), MinP: f(3), RepeatPenalty: f(4), Logprobs: w[5],
		Seed:            uint64(uint32(w[6])) | uint64(uint32(w[7]))<<32,
		PresencePenalty: f(8), FrequencyPenalty: f(9), Masked: w[11] != 0}, int(w[10])
}

// Slots is the device state of all sequences. Slot Count-1 is the trash slot: padding rows
// belong to it, and its block table names page 0, which belongs to no sequence.
type Slots struct {
	Count   int // slots, with the trash slot
	Pages   int // entries of a block table
	Context int // tokens of a sequence at most
	Masks   int // masks of a slot: one for each row that a sequence may have in a verify pass; 0 is 1

	BlockTable device.Buffer // int32 [Count][Pages]: page of each run of PageTokens tokens
	Length     device.Buffer // int32 [Count]: tokens with stored keys and values
	Token      device.Buffer // int32 [Count]: the token sampled last
	History    device.Buffer // int32 [Count][Context]: the sequence's tokens
	Params     device.Buffer // int32 [Count][ParamWords]: generation, prompt, sampling

	// Shared with the host, which writes them; see [SlotsView].
	Mask device.Buffer // uint32 [Count][Masks][MaskWords]: a bit for each token that may be drawn, if Sampling.Masked
	Bias device.Buffer // [Count][MaxBiases] × {token int32, value float32}: the first len(Sampling.Biases) count
}

// ParamWords is the length of a slot's part of Slots.Params.
const ParamWords = 14

// maskedParam is the word of Sampling.Masked in a slot's part of Slots.Params.
const maskedParam = 13

// isMasked reports whether a slot's sequence is Sampling.Masked. The host writes the drafts of such a sequence, with
// their masks, so drafters leave its rows alone.
func (s Slots) isMasked(h *device.Host, slot int) bool {
	return h.Int32(s.Params)[slot*ParamWords+maskedParam] != 0
}

// AllocSlots allocates count slots and a trash slot, without what [Slots.AllocShared] allocates. The caller frees the
// buffers, also those that it returns beside an error.
func AllocSlots(m device.Memory, count, pages, context int) (Slots, error) {
	s := Slots{Count: count + 1, Pages: pages, Context: context}
	for _, a := range []struct {
		buf   *device.Buffer
		words int
	}{{&s.BlockTable, pages}, {&s.Length, 1}, {&s.Token, 1}, {&s.History, context}, {&s.Params, ParamWords}} {
		var err error
		if *a.buf, err = m.Alloc(4 * int64(s.Count) * int64(a.words)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s Slots) check() error {
	return checkBuffers(need{"block table", s.BlockTable, s.Count * s.Pages}, need{"lengths", s.Length, s.Count},
		need{"tokens", s.Token, s.Count}, need{"history", s.History, s.Count * s.Context},
		need{"params", s.Params, s.Count * ParamWords})
}

// Rows holds the rows of a step: Stage writes them, and the other ops read them.
type Rows struct {
	Slot     device.Buffer // int32 [MaxRows]
	Position device.Buffer // int32 [MaxRows]
	Token    device.Buffer // int32 [MaxRows]
	Sample   device.Buffer // int32 [MaxSamples]: row of each sample, -1 for padding
	Drawn    device.Buffer // int32 [MaxSamples]: the token of each sample of a verify pass, which Sample writes
	Number   device.Buffer // int32 [2]: the step's number
}

// AllocRows allocates the rows of a layout. The caller frees the buffers, also those that it
// returns beside an error.
func AllocRows(m device.Memory, l StepLayout) (Rows, error) {
	var r Rows
	for _, a := range []struct {
		buf *device.Buffer
		n   int
	}{{&r.Slot, l.MaxRows}, {&r.Position, l.MaxRows}, {&r.Token, l.MaxRows}, {&r.Sample, l.MaxSamples},
		{&r.Drawn, l.MaxSamples}, {&r.Number, 2}} {
		var err error
		if *a.buf, err = m.Alloc(4 * int64(a.n)); err != nil {
			return r, err
		}
	}
	return r, nil
}
