package draft

import "testing"

func TestHistory(t *testing.T) {
	long := novel(100_000)
	for _, c := range []struct {
		name   string
		prompt []int32
		answer []int32
		seen   bool // the last three tokens
	}{
		{"nothing", nil, nil, false},
		{"too short", []int32{1, 1}, nil, false},
		{"new", []int32{1, 2, 3, 4}, []int32{5}, false},
		{"not itself", []int32{1, 2, 3}, nil, false},
		{"at once", []int32{1, 2, 3, 4, 1, 2, 3}, nil, true},
		{"overlapping", []int32{7, 7, 7, 7}, nil, true},
		{"prompt and answer", []int32{1, 2, 3, 4, 9}, []int32{1, 2, 3}, true},
		{"begun in the prompt", []int32{1, 2, 3, 4, 1, 2}, []int32{3}, true},
		{"answer alone", nil, []int32{1, 2, 3, 4, 1, 2, 3}, true},
		{"other order", []int32{1, 2, 3, 4}, []int32{3, 2, 1}, false},
		{"two of three", []int32{1, 2, 3, 4}, []int32{1, 2, 4}, false},
		{"late in a long prompt", long[:9000], append(novel(100), 8000, 8001, 8002), true},
		{"the longest prompt", long, append(novel(400), 99_000, 99_001, 99_002), true},
	} {
		h := history{prompt: c.prompt}
		h.begin()
		for _, id := range c.answer {
			h.add(id)
		}
		if len(h.table) > mostEntries {
			t.Errorf("%s: a table of %d entries", c.name, len(h.table))
		}
		if seen := h.sight == seen; seen != c.seen {
			t.Errorf("%s: seen is %v", c.name, seen)
		}
	}
}

// TestHistoriesAreApart: a sequence that begins again has nothing of the one before it.
func TestHistoriesAreApart(t *testing.T) {
	p := New(Options{Most: 1, Rows: 2, Lookup: true})
	var s Sequence
	for _, prompt := range [][]int32{{1, 2, 3, 4}, {9, 9}} {
		s.Begin(p, prompt, 1)
		for _, id := range []int32{3, 4, 5, 1, 2, 3} {
			s.Token(id)
		}
	}
	if s.history.sight != unseen {
		t.Error("found the tokens of another sequence")
	}
}
