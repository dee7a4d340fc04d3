package assembly

import (
	"fmt"
	"slices"
	"testing"
)

// Parts of a start that go on at once add up, and what is said to go on is the first that has not ended, or the last to
// report.
func TestTogether(t *testing.T) {
	var got []string
	all := together{done: 0.1, report: func(share float64, activity string) {
		got = append(got, fmt.Sprintf("%.2f %s", share, activity))
	}}
	weights, graphs := all.part(0.7, "weights"), all.part(0.2, "graphs")
	weights(0)
	graphs(0.5)
	weights(0.5)
	graphs(1)
	weights(1)
	want := []string{"0.10 weights", "0.20 weights", "0.55 weights", "0.65 weights", "1.00 weights"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
