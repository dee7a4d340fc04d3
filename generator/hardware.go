//go:build linux

package main

import (
	"reel/generator/internal/plan"
)

// budget is what the plan may deal out; a GPU's budget has no limit
// to name.
func (h hardware) budget(w plan.WeightUse) (plan.Budget, error) {
	if h.available != nil {
		bytes, err := h.available()
		return plan.Budget{Bytes: bytes, Hard: plan.Unlimited}, err
	}
	list, err := h.limits()
	return plan.HostBudget(list, w), err
}
