package kernels

import (
	"errors"
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// Scoring is how a router makes scores of its logits.
type Scoring uint8

// The scorings.
const (
	SoftmaxOfAll    Scoring = iota // over all experts
	Sigmoid                        // of each expert alone
	SoftmaxOfChosen                // over the experts that were chosen by their logits
)

// Bounds of a router. Every published model is well within them.
const (
	MostExperts     = 1024
	MostExpertsUsed = 32 // of a row
)

// Chosen is the experts that the rows of a step go to. Route writes it and the ops of the experts read it, on the
// device: its shape does not depend on the choice.
type Chosen struct {
	IDs     device.Buffer // int32 [T][Used]: the experts of each row, by falling score, then by rising id
	Weights device.Buffer // float32 [T][Used]: the factors of their results
	// Segments is [SegmentsBytes] bytes, or none: on a GPU, the pairs of a row and one of its experts in groups of
	// one expert, by which kernels read an expert for several rows at once. The host has none.
	Segments device.Buffer
	Experts  int // of the layer
	Used     int // of a row
}

// A segment has up to fewPlaces pairs of a row and an expert in steps of up to fewSegmentRows rows, and manyPlaces in
// others, which multiply more rows by an expert at a time.
const (
	fewPlaces      = 8
	manyPlaces     = 64
	fewSegmentRows = 32
)

// placesOf returns the pairs of a segment in a step of T rows.
func placesOf(T int) int {
	if T <= fewSegmentRows {
		return fewPlaces
	}
	return manyPlaces
}

// segmentsOf returns the most segments that T rows need: of each expert the last one may be partly filled.
func segmentsOf(T, used, experts int) int {
	places, each := T*used, placesOf(T)
	return min(places, (places+min(experts, places)*(each-1))/each)
}

// segmentsAt is the element of Segments at which the segments begin.
const segmentsAt = 4

// SegmentsBytes returns the size of [Chosen].Segments for up to T rows: a count, then of each segment the expert, the
// places and their rows; or what the kernels of a prompt need.
func SegmentsBytes(T, used, experts int) (bytes int64) {
	bytes = placesBytes(T, used, experts)
	for _, rows := range []int{min(T, fewSegmentRows), T} {
		bytes = max(bytes, 4*int64(segmentsAt+segmentsOf(rows, used, experts)*(1+2*placesOf(rows))))
	}
	return bytes
}

// check compares dimensions for T rows.
func (c Chosen) check(T int) error {
	if c.Experts < 1 || c.Experts > MostExperts || c.Used < 1 || c.Used > min(c.Experts, MostExpertsUsed) {
		return fmt.Errorf("%w: %d of %d experts, wants at most %d of %d", device.ErrBadShape, c.Used, c.Experts,
			MostExpertsUsed, MostExperts)
	}
	return checkBuffers(need{"ids", c.IDs, T * c.Used}, need{"weights", c.Weights, T * c.Used})
}

// Route chooses experts for each row: logits = Router·rmsnorm(X[t]) + Bias, their scores, the experts of the greatest
// scores + Choice, and their weights: the scores without Choice, divided by their sum if Normalise is set, times Scale
// and ExpertScales. (Shazeer and others, "Outrageously Large Neural Networks", 2017; DeepSeek-AI, "DeepSeek-V3
// Technical Report", 2024.)
type Route struct {
	X        device.Buffer // float32 [T][Hidden]; with RowIndex at least T rows, and all that it names
	RowIndex device.Buffer // as in [GateUp]; rows of Chosen for entries of -1 are not written
	Norm     device.Buffer // float32 [Hidden]
	Router   device.Buffer // float32 [Experts][Hidden]
	Bias     device.Buffer // float32 [Experts], or none
	Choice   device.Buffer // float32 [Experts], or none: e_score_correction_bias
	Chosen   Chosen        // out
	// Groups divide the experts, if there is more than one group: only those of the GroupsUsed best groups are chosen.
	// A group is as good as its best expert, or with BestTwo as the sum of its best two.
	Groups, GroupsUsed int
	BestTwo            bool
	Scoring            Scoring
	Normalise          bool
	Scale              float32       // 0: 1
	ExpertScales       device.Buffer // float32 [Experts], or none: what the weight of each expert is multiplied by at last
	T, Hidden          int
	Eps                float32
	Workspace          RouteWorkspace
}

// RouteWorkspace is device memory that a GPU's kernel needs; the host uses none of it.
type RouteWorkspace struct {
	Logits   device.Buffer // float32 [T][Experts]
	Arrivals device.Buffer // uint32 [T]: zeros at first, and left at zero
}

// Kernel returns "route".
func (Route) Kernel() string { return "route" }

// Check compares dimensions.
func (o Route) Check() error {
	if err := o.Chosen.check(o.T); err != nil {
		return err
	}
	e := o.Chosen.Experts
	if g := o.Groups; g > 1 && (e%g != 0 || o.GroupsUsed < 1 || o.GroupsUsed > g ||
		o.GroupsUsed*(e/g) < o.Chosen.Used) {
		return fmt.Errorf("%w: %d experts of %d in %d of %d groups", device.ErrBadShape, o.Chosen.Used, e,
			o.GroupsUsed, g)
	}
	err := errors.Join(checkRowIndex(o.RowIndex, o.T, Decode), checkBuffers(need{"x", o.X, o.T * o.Hidden},
		need{"norm", o.Norm, o.Hidden}, need{"router", o.Router, e * o.Hidden}))
	for _, b := range []device.Buffer{o.Bias, o.Choice, o.ExpertScales} {
		if !b.IsZero() {
			err = errors.Join(err, checkBuffers(need{"bias or scales of a router", b, e}))
		}
	}
	return err
}

// Host computes on the host.
func (o Route) Host(h *device.Host) {
	x, T, e, used := h.Float32(o.X), o.T, o.Chosen.Experts, o.Chosen.Used
	if o.RowIndex.Bytes() > 0 {
		x, T = gatherRows(h, o.RowIndex, x, o.T, o.Hidden)
		defer h.Return(x)
	}
	n := normRows(h, x, h.Float32(o.Norm)[:o.Hidden], o.Eps, T)
	logits, scores, choice := h.Scratch(T*e), h.Scratch(T*e), h.Scratch(T*e)
	router, ids, weights := h.Float32(o.Router)[:e*o.Hidden], h.Int32(o.Chosen.IDs), h.Float32(o.Chosen.Weights)
	h.For(T, T*e*o.Hidden, func(begin, end int) {
		for t := begin; t < end; t++ {
			l := logits[t*e : (t+1)*e]
			vec.DotRows(l, n[t*o.Hidden:(t+1)*o.Hidden], router, o.Hidden, e)
			o.route(h, l, scores[t*e:(t+1)*e], choice[t*e:(t+1)*e], ids[t*used:(t+1)*used], weights[t*used:(t+1)*used])
		}
	})
	for _, s := range [][]float32{choice, scores, logits, n} {
		h.Return(s)
	}
}

// route chooses the experts of one row.
func (o Route) route(h *device.Host, logits, scores, choice []float32, ids []int32, weights []float32) {
	if !o.Bias.IsZero() {
		for i, b := range h.Float32(o.Bias)[:len(logits)] {
			logits[i] += b
		}
	}
	o.score(scores, logits)
	// Logits order experts as their scores do, and better where scores are equal in float32.
	copy(choice, logits)
	if o.byScore() {
		copy(choice, scores)
	}
	if !o.Choice.IsZero() {
		for i, b := range h.Float32(o.Choice)[:len(choice)] {
			choice[i] += b
		}
	}
	o.chooseGroups(choice)
	for k := range ids {
		best := greatest(choice)
		ids[k], weights[k] = int32(best), scores[best]
		choice[best] = notChosen
	}
	o.weigh(weights)
	if !o.ExpertScales.IsZero() {
		scales := h.Float32(o.ExpertScales)
		for k, id := range ids {
			weights[k] *= scales[id]
		}
	}
}

// byScore reports whether experts are chosen by their scores, and not by their logits.
func (o Route) byScore() bool { return !o.Choice.IsZero() || o.Groups > 1 && o.BestTwo }

// notChosen is a value of choice for an expert that is out of the choice. Other values that are not above it count as
// lowest, just above it.
var notChosen = float32(math.Inf(-1))

// score writes the scores of logits, for SoftmaxOfChosen the logits.
func (o Route) score(scores, logits []float32) {
	switch o.Scoring {
	case SoftmaxOfAll:
		copy(scores, logits)
		softmax(scores)
	case Sigmoid:
		for i, l := range logits {
			scores[i] = float32(1 / (1 + math.Exp(-float64(l))))
		}
	default:
		copy(scores, logits)
	}
}

// weigh makes weights of the scores of the chosen experts.
func (o Route) weigh(weights []float32) {
	if o.Scoring == SoftmaxOfChosen {
		softmax(weights)
	}
	scale := float32(1)
	if o.Scale != 0 {
		scale = o.Scale
	}
	if o.Normalise {
		var sum float32
		for _, w := range weights {
			sum += w
		}
		for k := range weights {
			weights[k] /= sum
		}
	}
	for k := range weights {
		weights[k] *= scale
	}
}

// chooseGroups takes the experts outside the best groups out of the choice.
func (o Route) chooseGroups(choice []float32) {
	if o.Groups <= 1 {
		return
	}
	size := len(choice) / o.Groups
	var all [MostExperts]float32
	best := all[:o.Groups]
	for g := range best {
		group := choice[g*size : (g+1)*size]
		first := greatest(group)
		best[g] = group[first]
		if o.BestTwo && size > 1 {
			one := group[first]
			group[first] = notChosen
			best[g] += group[greatest(group)]
			group[first] = one
		}
	}
	var used [MostExperts]bool
	for range o.GroupsUsed {
		g := greatest(best)
		used[g], best[g] = true, notChosen
	}
	for i := range choice {
		if !used[i/size] {
			choice[i] = notChosen
		}
	}
}

// greatest returns the index of the greatest value, the smaller one of equal ones. It passes over values that are not
// numbers; of such values alone, as those of padding rows, it returns the first that is not notChosen.
func greatest(v []float32) int {
	best := -1
	for i, x := range v {
		if x > notChosen && (best < 0 || x > v[best]) {
			best = i
		}
	}
	for i := 0; best < 0 && i < len(v); i++ {
		if x := v[i]; x != x {
			best = i
		}
	}
	return max(0, best)
}

// softmax replaces v by its softmax.
func softmax(v []float32) {
	most, sum := float64(v[0]), 0.0
	for _, x := range v {
		most = max(most, float64(x))
	}
	for _, x := range v {
		sum += math.Exp(float64(x) - most)
	}
	for i, x := range v {
		v[i] = float32(math.Exp(float64(x)-most) / sum)
	}
}
