package plan

import (
	"fmt"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
)

// Draft is a draft model: its config, and what [Planner] has of a model's matrices.
type Draft struct {
	Config  model.Config
	Formats map[string]kernels.DType
	Ordered string
}

// kind is the kind of the draft model's weights in reports.
func (d *Draft) kind() model.TensorKind {
	if d.Config.Eagle != nil {
		return "EAGLE-3 head"
	}
	return "draft model"
}

// drafter returns a planner of the draft model alone. There is one.
func (p Planner) drafter() Planner {
	d := p.Draft
	p.Config, p.Formats, p.Ordered, p.Draft = d.Config, d.Formats, d.Ordered, nil
	return p
}

// draftOptions returns the engine's drafter. A draft model has no weights yet.
func (p Planner) draftOptions() (engine.DraftKind, *model.Model) {
	switch {
	case p.Config.Embedding != nil:
		return engine.DraftOff, nil
	case p.Draft != nil:
	case p.Options.Draft == config.DraftAuto && p.Profile.kind == "cuda":
		return engine.DraftLookup, nil
	default:
		return drafters[p.Options.Draft], nil
	}
	kind := engine.DraftModel
	if p.Options.GivenDrafts() {
		kind = engine.DraftGiven
	}
	return kind, &model.Model{Config: p.Draft.Config}
}

// draftWeights returns the size of the draft model's weights, if there is one.
func (p Planner) draftWeights(context int) []weightSize {
	if p.Draft == nil {
		return nil
	}
	sum := weightSize{kind: p.Draft.kind()}
	for _, w := range p.drafter().weights(context) {
		sum.parameters, sum.bytes, sum.read = sum.parameters+w.parameters, sum.bytes+w.bytes, sum.read+w.read
	}
	return []weightSize{sum}
}

// draftNodes returns the nodes that a draft model adds to a key's graph: its passes, one for each draft and one in
// other steps that it follows. An EAGLE-3 head follows in verify steps too.
func (p Planner) draftNodes(k graphs.Key) int {
	passes := 1
	switch {
	case p.Draft == nil, k == graphs.Decode(int(k.Rows)):
		return 0
	case k.Class == graphs.VerifyClass:
		if passes = int(k.Queries) - 1; p.Draft.Config.Eagle != nil {
			passes++
		}
	}
	c := p.Draft.Config
	return passes * (layerNodes(c)*c.Layers + passNodes(c) - 4) // without stage, accept and what writes records
}

// checkDraftPacked returns an error for a draft model that a GPU has no kernels for.
func (p Planner) checkDraftPacked() error {
	if p.Draft == nil {
		return nil
	}
	if err := p.drafter().checkPacked(); err != nil {
		return fmt.Errorf("--draft: %w", err)
	}
	return nil
}
