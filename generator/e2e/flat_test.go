//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// held is what processes hold: resident memory in kB, open files, and goroutines or, where these are not known, threads.
type held struct{ kB, files, routines int }

// names are the words for what processes hold.
var heldNames = [3]string{"kB of resident memory", "open files", "goroutines"}

func (h held) list() [3]int { return [3]int{h.kB, h.files, h.routines} }

// sample is what a process held at a time after the begin of a run.
type sample struct {
	held
	at time.Duration
}

// heldBy returns what a process holds, with its threads; false if it has ended.
func heldBy(pid int) (h held, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	_, rest, found := strings.Cut(string(status), "VmRSS:") // a process that has ended and is not waited for has none
	files, err2 := os.ReadDir(filepath.Join(dir, "fd"))
	tasks, err3 := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil || err2 != nil || err3 != nil || !found {
		return h, false
	}
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	return held{kB, len(files), len(tasks)}, err == nil
}

// growth compares what a process held in the second and in the last tenth of a run, by the least of each tenth: what is
// in use for a time does not count, and what leaks does. Of processes that live for a part of the run only, each after
// another, peaks compares the most of each tenth. The sentences of faults name what has grown by more than the bound.
func growth(who string, samples []sample, whole time.Duration, peaks bool, bound held) (report string, faults []string) {
	tenth := func(i time.Duration) (h [3]int, n int) {
		var all [3][]int
		for _, s := range samples {
			if s.at >= i*whole/10 && s.at < (i+1)*whole/10 {
				for k, v := range s.list() {
					all[k] = append(all[k], v)
				}
			}
		}
		for k, values := range all {
			switch {
			case len(values) == 0:
			case peaks:
				h[k] = slices.Max(values)
			default:
				h[k] = slices.Min(values)
			}
		}
		return h, len(all[0])
	}
	second, n := tenth(1)
	last, m := tenth(9)
	if n == 0 || m == 0 {
		return "", []string{fmt.Sprintf("%s: %d and %d samples: there is nothing to compare", who, n, m)}
	}
	for k, most := range bound.list() {
		report += fmt.Sprintf(", %d → %d %s (bound +%d)", second[k], last[k], heldNames[k], most)
		if last[k]-second[k] > most {
			faults = append(faults, fmt.Sprintf("%s: %d %s in the second tenth, %d in the last", who, second[k], heldNames[k], last[k]))
		}
	}
	return who + ": " + report[2:], faults
}

// ramp are samples of a run of 100 s, of which h is the n-th.
func ramp(h func(n int) held) (all []sample) {
	for n := range 100 {
		all = append(all, sample{h(n), time.Duration(n) * time.Second})
	}
	return all
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
		report, faults := growth(what, ramp(c.h), 100*time.Second, c.peaks, bound)
		if len(faults) != c.faults || !strings.Contains(report, "bound +8192") {
			t.Errorf("%s: %q, %q", what, report, faults)
		}
	}
	if _, faults := growth("nothing", nil, time.Second, false, bound); len(faults) != 1 {
		t.Errorf("no samples: %q", faults)
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
