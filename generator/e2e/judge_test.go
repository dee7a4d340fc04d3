//go:build linux

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// question is what one client may ask of a model; n chooses prompt and seed.
type question struct {
	client, what, model string
	n                   int
}

// judge compares answers with those that the same questions had alone.
type judge struct {
	mu       sync.Mutex
	alone    map[question]string
	faults   []string
	answers  map[string]int // by client
	refusals int
	slow     int // requests that ended for a bound of the generator's on time that this machine did not keep
}

// slowMachine matches the generator's errors for bounds on the time of a format or a template. A machine with much else
// to do does not always keep them.
var slowMachine = regexp.MustCompile(`it takes more than 2 ?s|a mask took more than 1 s`)

func newJudge() *judge { return &judge{alone: map[question]string{}, answers: map[string]int{}} }

// fault notes what is wrong.
func (j *judge) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// again reports whether a question has to be asked again, because the machine was too slow for its answer.
func (j *judge) again(err string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	is := slowMachine.MatchString(err)
	if is {
		j.slow++
	}
	return is
}

// failed reports whether something is wrong.
func (j *judge) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.faults) > 0
}

// answer takes an answer or the error in its place. The first one to a question is that with which others are compared.
func (j *judge) answer(q question, got, err string) {
	if err != "" {
		j.fault("%+v: %s", q, err)
		return
	}
	j.mu.Lock()
	want, known := j.alone[q]
	if !known {
		j.alone[q] = got
	} else {
		j.answers[q.client]++
	}
	j.mu.Unlock()
	if known && got != want {
		j.fault("%+v: %s, alone %s", q, got, want)
	}
}

// refused takes an answer that asks the client to come again. Only one is right: another model holds the device.
func (j *judge) refused(q question, status int, after, body string) {
	if slowMachine.MatchString(body) {
		return // it is an error too
	}
	j.mu.Lock()
	j.refusals++
	j.mu.Unlock()
	seconds, err := strconv.Atoi(after)
	const full = "there is no room on the GPU for this model now: "
	if status != 503 || err != nil || seconds < 1 || !strings.Contains(body, full) {
		j.fault("%+v is refused: %d, Retry-After %q, %s", q, status, after, body)
	}
}

// Wrong answers, errors, and refusals that are none of the gateway's are seen.
func TestJudge(t *testing.T) {
	const busy = `{"error": {"message": "there is no room on the GPU for this model now: it is held by montague"}}`
	q, other := question{"go", "chat", "capulet", 1}, question{"go", "chat", "capulet", 2}
	for what, c := range map[string]struct {
		do    func(j *judge)
		fault bool
	}{
		"the same":         {func(j *judge) { j.answer(q, "a", "") }, false},
		"another":          {func(j *judge) { j.answer(q, "b", "") }, true},
		"an error":         {func(j *judge) { j.answer(q, "", "broken") }, true},
		"another question": {func(j *judge) { j.answer(other, "b", "") }, false},
		"busy":             {func(j *judge) { j.refused(q, 503, "2", busy) }, false},
		"without a time":   {func(j *judge) { j.refused(q, 503, "", busy) }, true},
		"at once":          {func(j *judge) { j.refused(q, 503, "0", busy) }, true},
		"another reason":   {func(j *judge) { j.refused(q, 503, "2", `{"error": "no generator"}`) }, true},
		"another status":   {func(j *judge) { j.refused(q, 429, "2", busy) }, true},
		"a slow machine": {func(j *judge) {
			const slow = `{"error": "format: it takes more than 2 s to compile (correct the format)"}`
			if j.refused(q, 400, "", slow); !j.again(slow) || j.again("broken") {
				j.fault("it is not asked again")
			}
		}, false},
		"an error of alone": {func(j *judge) { j.answer(other, "", "broken") }, true},
	} {
		j := newJudge()
		j.answer(q, "a", "")
		if c.do(j); j.failed() != c.fault {
			t.Errorf("%s: faults %q", what, j.faults)
		}
	}
}
