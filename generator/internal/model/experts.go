package model

import (
	"fmt"
	"slices"

	"reel.internal/reel/kernels"
)

// Experts is a mixture of experts: in its layers each row goes to a few of many feed-forwards.
type Experts struct {
	Count int // experts of a layer
	Used  int // of a row
	Inner int // width of an expert
	// Shared is the width of one more feed-forward, of all rows, whose results are added to those of the experts; 0: there
	// is none.
	Shared int `json:",omitempty"`
	// Dense is, by layer, whether it has one feed-forward of width Config.Inner instead; nil: none has.
	Dense []bool

	Scoring            kernels.Scoring
	Normalise          bool    // the weights of a row have the sum Scale
	Scale              float32 // of the weights; 0: 1
	Groups, GroupsUsed int     // as in [kernels.Route]
	BestTwo            bool    // as in [kernels.Route]
	Choice             bool    // the checkpoint has a bias for choosing
	RouterBias         bool    // the router has a bias
	Bias               bool    // the experts have biases
	Transposed         bool    // stacks of a checkpoint are [count][columns][rows], as of gpt-oss
	// Beside: Shared is the feed-forward of a dense layer, of width Config.Inner. Both have norms of their own, before and
	// after, and the norm of the layer is that of their sum. (Gemma 4.)
	Beside bool    `json:",omitempty"`
	Limit  float32 // of gpt-oss's activation, as in [kernels.ExpertGateUp]; 0: none
}

// sparse reports whether a layer has experts.
func (c Config) sparse(layer int) bool {
	return c.Experts != nil && (c.Experts.Dense == nil || !c.Experts.Dense[layer])
}

// innerWidth returns the elements that the results of a row's gates take.
func (c Config) innerWidth() int {
	e := c.Experts
	switch {
	case e == nil:
		return c.Inner
	case e.Dense == nil:
		return e.Used * e.Inner
	}
	return max(c.Inner, e.Used*e.Inner)
}

// sharedWidth returns Experts.Shared; 0: there is none.
func (c Config) sharedWidth() int {
	if c.Experts == nil {
		return 0
	}
	return c.Experts.Shared
}

// expertsBeside reports whether layers have experts beside a feed-forward.
func (c Config) expertsBeside() bool { return c.Experts != nil && c.Experts.Beside }

// groupsExperts reports whether a row chooses among groups of experts first.
func (c Config) groupsExperts() bool { return c.Experts != nil && c.Experts.Groups > 1 }

// check refuses numbers that are out of bounds or do not fit each other.
func (e *Experts) check(c Config) error {
	if e == nil {
		return nil
	}
	if err := checkDimensions(dimension{"the number of experts", e.Count, kernels.MostExperts},
		dimension{"num_experts_per_tok", e.Used, min(e.Count, kernels.MostExpertsUsed)},
		dimension{"the width of an expert", e.Inner, maxDimension}); err != nil {
		return err
	}
	if e.Shared < 0 || e.Shared > maxDimension {
		return outside("the width of shared experts", e.Shared, 0, maxDimension)
	}
	if rows := e.Count * max(e.Inner, c.Hidden); rows > maxStack {
		return fmt.Errorf("model: config.json: %d experts have %d rows together, wants at most %d", e.Count, rows,
			maxStack)
	}
	if e.Dense != nil && !slices.Contains(e.Dense, false) {
		return fmt.Errorf("%w: config.json: no layer has one of its %d experts", ErrUnsupported, e.Count)
	}
	if s := e.Scale; s != 0 && !(s >= minScale && s <= maxScale) {
		return outside("routed_scaling_factor", s, minScale, maxScale)
	}
	if g := e.Groups; g > 1 && (e.Count%g != 0 || e.GroupsUsed < 1 || e.GroupsUsed > g ||
		e.GroupsUsed*(e.Count/g) < e.Used) {
		return fmt.Errorf("model: config.json: topk_group %d of n_group %d does not fit %d of %d experts",
			e.GroupsUsed, g, e.Used, e.Count)
	}
	return nil
}

// maxStack bounds the rows of all experts of a layer together.
const maxStack = 1 << 24

// Names of the tensors of a layer with experts, after the layer's prefix. The experts of a layer are one matrix, expert
// after expert; experts_tensors.go makes it of a checkpoint's.
const (
	routerProj   = "mlp.gate.weight"
	routerBias   = "mlp.gate.bias"
	routerChoice = "mlp.gate.e_score_correction_bias"
	expertsGate  = "mlp.experts.gate_proj.weight"
	expertsUp    = "mlp.experts.up_proj.weight"
	expertsDown  = "mlp.experts.down_proj.weight"
	gateBias     = "mlp.experts.gate_proj.bias"
	upBias       = "mlp.experts.up_proj.bias"
	downBias     = "mlp.experts.down_proj.bias"
	sharedGate   = "mlp.shared_experts.gate_proj.weight"
	sharedUp     = "mlp.shared_experts.up_proj.weight"
	sharedDown   = "mlp.shared_experts.down_proj.weight"

	// Of experts beside a feed-forward; the names are Gemma 4's.
	routerScale  = "router.scale"
	routerScales = "router.per_expert_scale"
	expertsNorm  = "pre_feedforward_layernorm_2.weight"
	afterShared  = "post_feedforward_layernorm_1.weight"
	afterExperts = "post_feedforward_layernorm_2.weight"
)

// experts adds the tensors of a layer's experts.
func (s *specs) experts() {
	c, e := s.c, s.c.Experts
	s.add(RouterTensor, routerProj, e.Count, c.Hidden)
	if e.RouterBias {
		s.add(NormTensor, routerBias, e.Count)
	}
	if e.Choice {
		s.add(NormTensor, routerChoice, e.Count)
	}
	s.add(ExpertTensor, expertsGate, e.Count*e.Inner, c.Hidden)
	s.add(ExpertTensor, expertsUp, e.Count*e.Inner, c.Hidden)
	s.add(ExpertTensor, expertsDown, e.Count*c.Hidden, e.Inner)
	if e.Bias {
		s.add(NormTensor, gateBias, e.Count*e.Inner)
		s.add(NormTensor, upBias, e.Count*e.Inner)
		s.add(NormTensor, downBias, e.Count*c.Hidden)
	}
	if e.Beside {
		s.add(NormTensor, routerScale, c.Hidden)
		s.add(NormTensor, routerScales, e.Count)
		for _, name := range []string{expertsNorm, afterShared, afterExperts} {
			s.add(NormTensor, name, c.Hidden)
		}
	}
	if e.Shared > 0 {
		s.add(FeedForwardTensor, sharedGate, e.Shared, c.Hidden)
		s.add(FeedForwardTensor, sharedUp, e.Shared, c.Hidden)
		s.add(FeedForwardTensor, sharedDown, c.Hidden, e.Shared)
	}
}
