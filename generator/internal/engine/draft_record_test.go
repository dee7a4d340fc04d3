package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// verifying returns an engine that the test drives step by step, and its first verify step, which has run: of a request
// with three drafts, of which all stand, beside one without.
func verifying(t *testing.T) (w *watch, b *testEngine, drafted *sink, step stepInFlight) {
	t.Helper()
	q := Request{Tokens: []int32{1, 2}, MaxTokens: 9}
	for _, token := range askEach(t, []Request{q}).alone[0] {
		q.Prediction = append(q.Prediction, token.ID)
	}
	o := nano()
	o.Draft, o.DraftTokens = DraftGiven, 3
	w = newWatch()
	b = built(t, device.HostOptions{}, o, w.wrap)
	w.engine = b.Engine
	q.DraftTokens = 3
	drafted, _ = b.submit(q)
	q.DraftTokens = 0
	b.submit(q)
	commands, _, _ := b.takeCommands()
	err := b.apply(commands, nil)
	for err == nil && (len(b.inFlight) == 0 || b.inFlight[0].batch.Queries == 1) {
		if err = b.formAndEnqueue(); err == nil && b.inFlight[0].batch.Queries == 1 {
			err = b.completeStep()
		}
	}
	if err = errors.Join(err, b.stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
	return w, b, drafted, b.inFlight[0]
}

// A count of results that a sequence cannot have is a failure of the device, and no token; so is one of its records
// that is another's. Else a row that is padding would be a token, or a sequence wait forever for one.
func TestWrongCountIsNoToken(t *testing.T) {
	const slot, count = 2, 4 // words of a record
	for name, c := range map[string]struct {
		record, word int
		value        int32
		want         bool
	}{
		"right": {0, count, 4, true}, "fewer": {0, count, 2, true}, "none": {0, count, 0, false},
		"below none": {0, count, -1, false}, "more than drafts": {0, count, 5, false},
		"of one without drafts": {4, count, 2, false}, "another's": {3, slot, 7, false},
	} {
		w, b, s, step := verifying(t)
		if d := step.batch.Drafts; len(d) != 2 || d[0] != 3 || d[1] != 0 {
			t.Fatalf("drafts %v", d)
		}
		had := len(s.tokens)
		ring := w.h.Int32(w.results)
		ring = ring[len(ring)/b.memory.RingSlots*int(step.batch.Step.Number%uint64(b.memory.RingSlots)):]
		if got := ring[count]; got != 4 {
			t.Errorf("%d results, wants 4", got)
		}
		ring[c.record*kernels.RecordWords+c.word] = c.value
		err := b.completeStep()
		if wrong := errors.Is(err, errWrongRecord); wrong == c.want || c.want && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := len(s.tokens)-had, int(c.value); c.want && got != want || c.word == count && c.record == 0 &&
			!c.want && got != 0 {
			t.Errorf("%s: %d tokens were delivered", name, got)
		}
		b.finishAll(ErrShutdown)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
