package model

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// ropes holds the parameters of RoPE. Fields that it lacks are refused.
type ropes struct {
	Theta      *float64  `json:"rope_theta"`
	Type       string    `json:"rope_type"`
	TypeOld    string    `json:"type"`
	Fraction   *float64  `json:"partial_rotary_factor"`
	Factor     float64   `json:"factor"`
	LowFactor  float64   `json:"low_freq_factor"`
	HighFactor float64   `json:"high_freq_factor"`
	Original   int       `json:"original_max_position_embeddings"`
	Max        int       `json:"max_position_embeddings"` // a copy, which transformers writes for Ministral 3
	Attention  *float64  `json:"attention_factor"`
	BetaFast   float64   `json:"beta_fast"`
	BetaSlow   float64   `json:"beta_slow"`
	Scale      float64   `json:"mscale"`
	ScaleAll   float64   `json:"mscale_all_dim"`
	Truncate   *bool     `json:"truncate"`
	Short      []float32 `json:"short_factor"`
	Long       []float32 `json:"long_factor"`
	QueryScale float64   `json:"llama_4_scaling_beta"` // 1 + it·ln(1 + ⌊position/Original⌋) multiplies q

	// The parameters by kind of layer, in the place of all others.
	Full    *ropes `json:"full_attention"`
	Sliding *ropes `json:"sliding_attention"`
}

// splitRoPE takes the parameters of RoPE apart where they are those of kinds of layers. A family with two kinds has them
// in rope_parameters only so, but for flatRoPE.
func (f *configFile) splitRoPE(fam family) error {
	r := f.RoPE
	switch {
	case r != nil && !r.byKind() && fam.flatRoPE && !r.scales():
	case r == nil && f.RoPEScaling.byKind(), r != nil && r.byKind() != fam.localRoPE,
		r.byKind() && !reflect.DeepEqual(*r, ropes{Full: r.Full, Sliding: r.Sliding}),
		r.byKind() && (r.Full.byKind() || r.Sliding.byKind()):
		return fmt.Errorf("%w: config.json: rope_parameters by kind of layer, or not", ErrUnsupported)
	case r.byKind():
		if f.RoPE = r.Full; r.Full == nil {
			f.RoPE = &ropes{}
		}
		f.localRoPE = r.Sliding
	}
	return nil
}

// setLocalTheta sets the base of frequencies of layers with windows, where the file has none.
func (f *configFile) setLocalTheta(theta float64) {
	local := ropes{}
	if f.localRoPE != nil {
		local = *f.localRoPE
	}
	if local.Theta == nil {
		local.Theta = &theta
	}
	f.localRoPE = &local
}

// byKind reports whether the parameters are those of kinds of layers.
func (r *ropes) byKind() bool { return r != nil && (r.Full != nil || r.Sliding != nil) }

// scales reports whether there is more than a base of frequencies.
func (r *ropes) scales() bool {
	return r != nil && (r.kind() != "" || !reflect.DeepEqual(*r, ropes{Theta: r.Theta, Type: r.Type, TypeOld: r.TypeOld}))
}

// dynamicRoPE is a rope_type: up to the context of pretraining it scales nothing, and then by the length so far.
const dynamicRoPE RoPEKind = "dynamic"

// unsupported reports whether the forward pass lacks this kind of RoPE: a type that is not known, or a field that its
// type does not read.
func (r *ropes) unsupported(fam family) bool {
	if r == nil {
		return false
	}
	kind := r.kind()
	for _, field := range []struct {
		is    bool
		kinds []RoPEKind
	}{{r.Factor != 0 && r.Factor != 1, []RoPEKind{Llama3RoPE, LinearRoPE, YarnRoPE, LongRoPE, dynamicRoPE,
		ProportionalRoPE}},
		{r.LowFactor != 0 || r.HighFactor != 0, []RoPEKind{Llama3RoPE}},
		{r.BetaFast != 0 || r.BetaSlow != 0 || r.Scale != 0 || r.ScaleAll != 0 || r.Truncate != nil,
			[]RoPEKind{YarnRoPE}},
		{r.Attention != nil, []RoPEKind{YarnRoPE, LongRoPE}},
		{r.Short != nil || r.Long != nil, []RoPEKind{LongRoPE}},
		{r.QueryScale != 0 || r.Max != 0, []RoPEKind{YarnRoPE}}} {
		if field.is && !slices.Contains(field.kinds, kind) {
			return true
		}
	}
	known := []RoPEKind{"", Llama3RoPE, LinearRoPE, YarnRoPE, LongRoPE, dynamicRoPE}
	if slices.Contains(fam.scalings, ProportionalRoPE) {
		known = append(known, ProportionalRoPE)
	}
	partial := fam.partial || kind == ProportionalRoPE
	contradicts := r.Type != "" && r.TypeOld != "" && r.Type != r.TypeOld
	foreign := kind != "" && fam.scalings != nil && !slices.Contains(fam.scalings, kind)
	return !slices.Contains(known, kind) || contradicts || foreign || r.fraction() != 1 && !partial ||
		fam.architecture != ministral3Architecture && r.QueryScale != 0
}

// fraction returns the part of each head that is rotated.
func (r ropes) fraction() float64 {
	if r.Fraction == nil {
		return 1
	}
	return *r.Fraction
}

// kind returns the type, which the file holds under a new name or an old one. The default is "".
func (r ropes) kind() RoPEKind {
	kind := r.Type
	if kind == "" {
		kind = r.TypeOld
	}
	switch kind {
	case "default":
		return ""
	case "su": // Phi-3's first name of it
		return LongRoPE
	}
	return RoPEKind(kind)
}

// String formats r for the text of a refusal.
func (r *ropes) String() string {
	if r == nil {
		return "none"
	}
	text := fmt.Sprintf("rope_type %q", cmp.Or(r.kind(), "default"))
	if r.Factor != 0 {
		text += fmt.Sprintf(", factor %g", r.Factor)
	}
	if r.fraction() != 1 {
		text += fmt.Sprintf(", partial_rotary_factor %g", r.fraction())
	}
	return text
}

// ropes returns RoPE's parameters, which the file holds under a new name or an old one.
func (f *configFile) ropes() ropes {
	for _, r := range []*ropes{f.RoPE, f.RoPEScaling} {
		if r != nil {
			return *r
		}
	}
	return ropes{}
}

// theta returns the base of RoPE's frequencies from either of its two places, or the family's, or Llama 2's.
func (f *configFile) theta(fam family) float64 {
	for _, theta := range []*float64{f.Theta, f.ropes().Theta} {
		if theta != nil {
			return *theta
		}
	}
	if fam.theta != 0 {
		return fam.theta
	}
	return 10000
}

// original returns the tokens of pretraining's context.
func (f *configFile) original() int {
	for _, n := range []int{f.OriginalMax, f.ropes().Original, f.Context} {
		if n > 0 {
			return n
		}
	}
	return 0
}

// scaling returns what extends RoPE. (transformers, modeling_rope_utils.py.)
func (f *configFile) scaling() RoPEScaling {
	r := f.ropes()
	s := RoPEScaling{Kind: r.kind(), Factor: r.Factor}
	switch s.Kind {
	case Llama3RoPE:
		s.LowFactor, s.HighFactor, s.Original = r.LowFactor, r.HighFactor, r.Original
	case LinearRoPE:
	case YarnRoPE:
		s.Original, s.BetaFast, s.BetaSlow = f.original(), 32, 1
		if s.Factor == 0 {
			s.Factor = float64(f.Context) / float64(s.Original)
		}
		if r.BetaFast != 0 {
			s.BetaFast = r.BetaFast
		}
		if r.BetaSlow != 0 {
			s.BetaSlow = r.BetaSlow
		}
		s.Whole = r.Truncate == nil || *r.Truncate
		s.Attention = f.attention(s)
	case ProportionalRoPE:
		if s.Fraction = r.fraction(); s.Factor == 0 {
			s.Factor = 1
		}
	case LongRoPE:
		s.Factor, s.Original = 0, f.original()
		s.Attention = f.attention(s)
	default:
		return RoPEScaling{}
	}
	return s
}

// attention returns the attention factor of yarn or longrope.
func (f *configFile) attention(s RoPEScaling) float32 {
	r, factor := f.ropes(), f.ropes().Factor
	if factor == 0 {
		factor = float64(f.Context) / float64(s.Original)
	}
	switch {
	case r.Attention != nil:
		return float32(*r.Attention)
	case s.Kind == LongRoPE && factor <= 1:
		return 1
	case s.Kind == LongRoPE:
		return float32(math.Sqrt(1 + math.Log(factor)/math.Log(float64(s.Original))))
	case r.Scale != 0 && r.ScaleAll != 0:
		return float32(yarnAttention(factor, r.Scale) / yarnAttention(factor, r.ScaleAll))
	}
	return float32(yarnAttention(factor, 1))
}

// setRotated sets the elements of a head and the layers that RoPE rotates.
func (f *configFile) setRotated(c *Config, fam family) {
	fraction := f.Fraction
	if f.ropes().Fraction != nil {
		fraction = f.ropes().fraction()
	}
	if fraction != 1 && c.RoPE.Kind != ProportionalRoPE {
		c.Rotated = max(1, int(float64(c.HeadDim)*fraction))
	}
	for i := range min(max(f.Layers, 0), maxLayers) {
		if fam.noRoPE == nil {
			return
		}
		c.NoRoPE = append(c.NoRoPE, fam.noRoPE(f, i))
	}
}

// queryScaleReason says why a context is no longer.
const queryScaleReason = "beyond it llama_4_scaling_beta scales queries by their position"

// setContext sets the context where a scaling changes what max_position_embeddings says. Yarn is often added to a
// config that has the context before.
func (f *configFile) setContext(c *Config) {
	r := f.ropes()
	c.QueryScale = float32(r.QueryScale)
	switch {
	case r.kind() == dynamicRoPE:
		c.ContextReason = `beyond it rope_type "dynamic" has other frequencies at each length`
	case r.QueryScale == 0 && c.RoPE.Kind == YarnRoPE:
		c.Context = max(c.Context, int(min(c.RoPE.Factor*float64(c.RoPE.Original), maxContext)))
	case r.QueryScale != 0 && c.Context > c.RoPE.Original:
		c.Context = c.RoPE.Original
		c.ContextReason = queryScaleReason
	}
}
