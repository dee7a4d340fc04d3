//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// held is what processes hold: resident memory in kB, open files, and goroutines, or threads where goroutines are not
// known.
type held struct{ kB, files, routines int }

// heldNames are the words for what processes hold.
var heldNames = [3]string{"kB of resident memory", "open files", "goroutines"}

func (h held) list() [3]int { return [3]int{h.kB, h.files, h.routines} }

// heldBy returns what a process holds, with its threads; false if it has ended.
func heldBy(pid int) (h held, ok bool) {
	kB, err := kilobytesOf(pid, "VmRSS")
	files, err2 := entriesOf(pid, "fd")
	threads, err3 := entriesOf(pid, "task")
	return held{kB, files, threads}, errors.Join(err, err2, err3) == nil
}

// enoughSamples is the least number of samples that growth compares.
const enoughSamples = 20

// growth compares what a process held in the second and in the last tenth of a run, by the least of each tenth: what
// is in use for a time does not count, and what leaks does. Samples are in the order in which they were taken. Of
// processes that live one after another, peaks compares the most of each tenth. The sentences of faults name what has
// grown by more than the bound.
func growth(who string, samples []held, peaks bool, bound held) (report string, faults []string) {
	n := len(samples)
	if n < enoughSamples {
		return "", []string{fmt.Sprintf("%s: only %d samples", who, n)}
	}
	second, last := extreme(samples[n/10:2*n/10], peaks), extreme(samples[9*n/10:], peaks)
	for k, most := range bound.list() {
		report += fmt.Sprintf(", %d → %d %s (bound +%d)", second[k], last[k], heldNames[k], most)
		if last[k]-second[k] > most {
			faults = append(faults, fmt.Sprintf("%s: %d %s in the second tenth of the run, %d in the last",
				who, second[k], heldNames[k], last[k]))
		}
	}
	return who + ": " + report[2:], faults
}

// extreme returns the least, or the most, of each that samples hold.
func extreme(samples []held, most bool) (h [3]int) {
	for k := range h {
		h[k] = samples[0].list()[k]
		for _, s := range samples {
			if v := s.list()[k]; v > h[k] == most {
				h[k] = v
			}
		}
	}
	return h
}

// Each kind of growth is seen, and noise is none.
func TestGrowthIsSeen(t *testing.T) {
	bound := held{8192, 32, 64}
	for what, c := range map[string]struct {
		h      func(n int) held
		peaks  bool
		faults int
	}{
		"flat":             {func(int) held { return held{50000, 20, 30} }, false, 0},
		"noise":            {func(n int) held { return held{50000 + n%3*30000, 20 + n%3*50, 30 + n%3*90} }, false, 0},
		"warming up":       {func(n int) held { return held{50000 - max(0, 10-n)*4000, 20, 30} }, false, 0},
		"memory":           {func(n int) held { return held{50000 + n*110 + n%3*30000, 20, 30} }, false, 1},
		"files":            {func(n int) held { return held{50000, 20 + n/2, 30} }, false, 1},
		"goroutines":       {func(n int) held { return held{50000, 20, 30 + n} }, false, 1},
		"all":              {func(n int) held { return held{50000 + n*110, 20 + n, 30 + n} }, false, 3},
		"lives alike":      {func(n int) held { return held{50000 + n%7*5000, 20, 30} }, true, 0},
		"each life larger": {func(n int) held { return held{50000 + n%7*5000 + n/7*1000, 20, 30} }, true, 1},
	} {
		var samples []held
		for n := range 100 {
			samples = append(samples, c.h(n))
		}
		report, faults := growth(what, samples, c.peaks, bound)
		if len(faults) != c.faults || !strings.Contains(report, "bound +8192") {
			t.Errorf("%s: %q, %q", what, report, faults)
		}
	}
	if _, faults := growth("nothing", make([]held, enoughSamples-1), false, bound); len(faults) != 1 {
		t.Errorf("few samples: %q", faults)
	}
}

// What this process holds in memory and in files is counted.
func TestHeldIsCounted(t *testing.T) {
	before, ok := heldBy(os.Getpid())
	const more = 64 << 20
	leak := make([]byte, more)
	for i := range leak {
		leak[i] = 1
	}
	for range 10 {
		file, err := os.Open("/dev/null")
		must(t, err)
		defer file.Close()
	}
	after, still := heldBy(os.Getpid())
	if !ok || !still || after.kB-before.kB < more>>10/2 || after.files-before.files < 10 || after.routines < 1 {
		t.Errorf("%+v, then %+v", before, after)
	}
	if leak[len(leak)-1] != 1 {
		t.Error("the memory is gone")
	}
	if _, ok := heldBy(1 << 30); ok {
		t.Error("a process that does not exist holds something")
	}
}
