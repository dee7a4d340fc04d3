//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
)

// doctor has the plan's figure of the weights.
func TestDoctorCountsWeights(t *testing.T) {
	o := config.Options{Device: "host", Model: "internal/model/testdata/qwen2"}
	c, use, err := assembly.Headers(os.DirFS(o.Model))
	if err != nil {
		t.Fatal(err)
	}
	r, err := plan.ReportFor(c, use, o, "x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := hostMemory(o); err != nil || r.Read < 2*81000 ||
		!strings.HasPrefix(found, "weights take "+plan.Size(r.WeightSum)+", and KV cache") {
		t.Errorf("%q, %v", found, err)
	}
}
