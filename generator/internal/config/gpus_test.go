package config

import (
	"slices"
	"testing"
)

// --gpus N is --gpu N; a list names several, each once.
func TestGPUs(t *testing.T) {
	for text, want := range map[string][]int{"": {3}, "1": {1}, "0,1": {0, 1}, "2, 0": {2, 0}} {
		o := Options{}
		gpus := Pick(Settings(&o), "gpus")[0]
		o.GPU = 3
		if err := gpus.Set(text); err != nil || !slices.Equal(o.Devices(), want) || o.Ranks() != len(want) {
			t.Errorf("%q: %v, %v", text, o.Devices(), err)
		}
	}
	for _, text := range []string{"0,0", "-1", "a", "0,", ",", "1025", "0,1,2,3,4,5,6,7,8"} {
		if err := Pick(Settings(new(Options)), "gpus")[0].Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
