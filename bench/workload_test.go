package bench

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLengths(t *testing.T) {
	for text, want := range map[string]Lengths{"128": {128, 128}, "16-256": {16, 256}, "1-1": {1, 1}} {
		got, err := ParseLengths(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-5", "9-3", "x", "1-x", "1.5"} {
		if _, err := ParseLengths(text); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, l := range []Lengths{{5, 5}, {5, 9}} {
		if again, _ := ParseLengths(l.String()); again != l {
			t.Errorf("%v is formatted as %s", l, l)
		}
	}
}

// TestUniformLengths: all lengths of a range occur about equally often.
func TestUniformLengths(t *testing.T) {
	w := newWorkSource(Workload{Prompt: Lengths{3, 6}, Output: Lengths{10, 11}}, 100, 1)
	prompts, outputs := map[int]int{}, map[int]int{}
	for range 4000 {
		work := w.next()
		prompts[len(work.Tokens)]++
		outputs[work.MaxTokens]++
	}
	for n := 3; n <= 6; n++ {
		if !near(float64(prompts[n]), 1000, 0.15) {
			t.Errorf("prompts of %d: %d of 4000", n, prompts[n])
		}
	}
	if len(prompts) != 4 || len(outputs) != 2 || !near(float64(outputs[10]), 2000, 0.1) {
		t.Errorf("got %v, %v", prompts, outputs)
	}
}

func TestWorkloadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.jsonl")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{\"prompt\": \"Once\", \"output_tokens\": 4}\n\n{\"tokens\": [5, 6], \"output_tokens\": 7}\n" +
		"{\"prompt_tokens\": 9, \"output_tokens\": 1}\n")
	lines, err := ReadLines(path)
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v, %v", lines, err)
	}
	w := newWorkSource(Workload{Lines: lines}, 100, 1)
	first, second, third, fourth := w.next(), w.next(), w.next(), w.next()
	if first.Text != "Once" || first.MaxTokens != 4 || !slices.Equal(second.Tokens, []int32{5, 6}) ||
		len(third.Tokens) != 9 || fourth.Text != "Once" {
		t.Errorf("got %+v, %+v, %+v, %+v", first, second, third, fourth)
	}
	for text, says := range map[string]string{
		"": "no line", "{}": "line 1", "\n{\"prompt\": 3}": "line 2", `{"prompt": "a"}`: "output_tokens",
		`{"prompt": "a", "prompt_tokens": 3, "output_tokens": 1}`: "one of",
	} {
		write(text)
		if _, err := ReadLines(path); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadLines(path + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestSLO(t *testing.T) {
	s, err := ParseSLO("ttft=200ms, itl=50ms,tpot=1s,e2e=2s")
	want := SLO{200 * time.Millisecond, 50 * time.Millisecond, time.Second, 2 * time.Second}
	if err != nil || s != want || s.String() != "ttft=200ms,itl=50ms,tpot=1s,e2e=2s" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"", "ttft", "ttft=", "ttft=5", "ttft=-1s", "p99=1s"} {
		if _, err := ParseSLO(text); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
