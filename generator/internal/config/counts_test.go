package config

import (
	"slices"
	"testing"
)

func TestParseCounts(t *testing.T) {
	got, err := ParseCounts(" 1-3,64, 80,2 ,")
	if err != nil || !slices.Equal(got, []int{1, 2, 3, 64, 80}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"0", "a", "3-1", "-4", "1-", "1-99999999", "1-2-3"} {
		if got, err := ParseCounts(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}
