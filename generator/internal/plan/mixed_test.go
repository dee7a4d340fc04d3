package plan

import (
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
)

// On the host steps are mixed, within the step memory that there is anyway, and graphs of some are captured at start. A
// drafter that is a model, or a model for embeddings, has none.
func TestPlanMixedSteps(t *testing.T) {
	embeds, ranks := phi, phi
	embeds.Embedding = &model.Embedding{}
	ranks.Ranks = 2
	for name, c := range map[string]struct {
		p    Planner
		want bool
	}{
		"host":       {Planner{Config: phi, Profile: HostProfile}, true},
		"lookup":     {Planner{Config: phi, Profile: HostProfile, Options: config.Options{Draft: "lookup", DraftTokens: 7}}, true},
		"draft":      {Planner{Config: phi, Profile: HostProfile, Options: config.Options{DraftTokens: 7}, Draft: &Draft{Config: phi}}, false},
		"embeddings": {Planner{Config: embeds, Profile: HostProfile}, false},
		"ranks":      {Planner{Config: ranks, Profile: HostProfile}, false},
		"a GPU":      {Planner{Config: phi, Profile: GPUProfile.On(9, 0), Formats: map[string]kernels.DType{}}, false},
	} {
		o := c.p.engineOptions(4096, 64)
		without := o
		without.MixedRows = nil
		if o.Geometry() != without.Geometry() {
			t.Errorf("%s: mixed steps take memory", name)
		}
		keys := 0
		for _, k := range o.Lattice() {
			if k.Class == graphs.MixedClass {
				if keys++; k.Tokens() > o.Geometry().MaxRows || int(k.Queries) > o.Chunk {
					t.Errorf("%s: %s has too many rows", name, k)
				}
			}
		}
		if keys > 0 != c.want || keys > 40 {
			t.Errorf("%s: %d keys of mixed steps", name, keys)
		}
	}
}
