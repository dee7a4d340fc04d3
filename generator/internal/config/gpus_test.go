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

// A GPU that is named where it wins over the list serves alone. One that contradicts the list is refused.
func TestGPUBesideGPUs(t *testing.T) {
	for _, c := range []struct {
		name             string
		flags, variables map[string]string
		want             []int // nil: refused
	}{
		{"one of the list", map[string]string{"gpu": "1", "gpus": "0,1"}, nil, []int{0, 1}},
		{"another", map[string]string{"gpu": "2", "gpus": "0,1"}, nil, nil},
		{"both in the environment", nil, map[string]string{"REEL_GPU": "2", "REEL_GPUS": "0,1"}, nil},
		{"a flag over a list that has it", map[string]string{"gpu": "1"}, map[string]string{"REEL_GPUS": "0,1"}, []int{1}},
		{"a flag over a list", map[string]string{"gpu": "2"}, map[string]string{"REEL_GPUS": "0,1"}, []int{2}},
		{"a list over a variable", map[string]string{"gpus": "0,1"}, map[string]string{"REEL_GPU": "2"}, []int{0, 1}},
		{"a variable alone", nil, map[string]string{"REEL_GPUS": "0,1"}, []int{0, 1}},
	} {
		settings := Settings(new(Options))
		for name, value := range c.flags {
			if err := Pick(settings, name)[0].Set(value); err != nil {
				t.Fatal(err)
			}
		}
		given := func(name string) bool { return c.flags[name] != "" }
		o, err := NewReader(func(name string) string { return c.variables[name] }, given, settings).Read()
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(o.Devices(), c.want) {
			t.Errorf("%s: %v, %v", c.name, o.Devices(), err)
		}
	}
}
