//go:build cuda

package engine

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
)

// gpuRanksExpertsConfig is a model of experts that two GPUs can share. In decode passes of one row their down projections
// take the gates as they come.
func gpuRanksExpertsConfig() model.Config {
	c := gpuRanksConfig()
	c.Experts = &model.Experts{Count: 16, Used: 4, Inner: 128, Normalise: true}
	return c
}

// TestTwoGPUsGiveTheSameTokens holds for experts.
func TestTwoGPUsGiveTheSameTokensOfExperts(t *testing.T) { sameTokensOnTwo(t, gpuRanksExpertsConfig()) }

// So does TestTwoGPUsReplayEqualsEager.
func TestTwoGPUsReplayEqualsEagerWithExperts(t *testing.T) {
	c, o := gpuRanksExpertsConfig(), defaults()
	c.Ranks, o.Pages = 2, 64
	replaysEqualEager(t, onGPUs(t, openGPUs(t), c, o))
}
