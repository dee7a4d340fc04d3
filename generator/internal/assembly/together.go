package assembly

import "sync"

// together reports the progress of parts of a start of which some go on at once.
type together struct {
	mu     sync.Mutex
	report func(share float64, activity string) // called one call at a time
	done   float64                              // share of the start that is done
	parts  []*part
}

// part is one of them.
type part struct {
	of       float64 // share of the start
	done     float64 // of the part, 0 to 1
	activity string
}

// part returns a function that receives the progress of a part of the start, from 0 to 1, on any goroutine. What is
// reported as going on is the first part that has not ended.
func (t *together) part(of float64, activity string) func(done float64) {
	p := &part{of: of, activity: activity}
	t.parts = append(t.parts, p)
	return func(done float64) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.done += p.of * (done - p.done)
		p.done = done
		t.report(min(1, t.done), t.first(p).activity)
	}
}

// first returns the first part that has not ended, or last.
func (t *together) first(last *part) *part {
	for _, p := range t.parts {
		if p.done < 1 {
			return p
		}
	}
	return last
}
