package kernels

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"reel.internal/reel/kernels/internal/distribution"
)

// numpyCase is a case of testdata/sampling.json, which sampling.py writes with numpy.
type numpyCase struct {
	Logits        []float32
	Text          []int32
	Prompt        int
	Temperature   float32
	Repeat        float32
	Presence      float32
	Frequency     float32
	Biases        [][2]float32
	Allowed       []int32 // nil: all
	TopK          int32   `json:"top_k"`
	TopP          float32 `json:"top_p"`
	MinP          float32 `json:"min_p"`
	Greedy        int32
	Probabilities []float64
}

// sampling returns the case's parameters and what a draw depends on.
func (c *numpyCase) sampling() (Sampling, Past) {
	s := Sampling{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP, RepeatPenalty: c.Repeat,
		PresencePenalty: c.Presence, FrequencyPenalty: c.Frequency, Masked: c.Allowed != nil}
	for _, b := range c.Biases {
		s.Biases = append(s.Biases, Bias{int32(b[0]), b[1]})
	}
	return s, Past{Tokens: c.Text, Prompt: c.Prompt, Mask: maskOf(len(c.Logits), c.Allowed)}
}

// Draws with random penalties, biases, masks and filters have the distribution that numpy computes, by a chi-square
// test, and a temperature of 0 takes numpy's token.
func TestDrawsMatchNumpy(t *testing.T) {
	raw, err := os.ReadFile("testdata/sampling.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []numpyCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	draws := 20000
	if testing.Short() {
		draws = 2000
	}
	for i, c := range cases {
		s, past := c.sampling()
		want, counts, d := map[int]float64{}, map[int]int{}, new(draw)
		for id, p := range c.Probabilities {
			if p > 0 {
				want[id] = p
			}
		}
		for n := range draws {
			s.Seed = 0x9E3779B97F4A7C15 * uint64(n+1)
			counts[int(d.token(c.Logits, s, past))]++
		}
		distribution.Check(t, fmt.Sprintf("case %d", i), counts, want, float64(draws))
		s.Temperature = 0
		if got := d.token(c.Logits, s, past); got != c.Greedy {
			t.Errorf("case %d takes %d, want %d", i, got, c.Greedy)
		}
	}
}
