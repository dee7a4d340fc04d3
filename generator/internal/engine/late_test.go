package engine

import (
	"testing"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// withGap returns an engine that the test drives.
func withGap(t *testing.T, gap time.Duration) *testEngine {
	t.Helper()
	o := defaults()
	o.Gap, o.lead = gap, time.Millisecond
	b, err := tryBuildModel(t, microConfig(), device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// expect has the engine expect that decode steps of one sequence take so long.
func (b *testEngine) expect(takes time.Duration) {
	step := scheduler.Batch{Step: kernels.Step{Rows: make([]kernels.Row, 1)}, Served: make([]*scheduler.Sequence, 1)}
	for range 100 {
		b.sched.Took(&step, takes)
	}
}

// decoding runs a request in the engine up to its first token, and forms a decode step.
func (b *testEngine) decoding() {
	b.t.Helper()
	b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 100})
	commands, _, _ := b.takeCommands()
	if err := b.apply(commands, nil); err != nil {
		b.t.Fatal(err)
	}
	for len(b.inFlight) == 0 || b.inFlight[0].batch.Prefill {
		if err := b.formAndEnqueue(); err != nil {
			b.t.Fatal(err)
		}
		if b.inFlight[0].batch.Prefill {
			if err := b.completeStep(); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if err := b.formAndEnqueue(); err != nil {
		b.t.Fatal(err)
	}
}

// The second step in flight is formed late if the first one's end can be told, and with a gap alone.
func TestTheSecondStepIsFormedLate(t *testing.T) {
	for _, c := range []struct {
		gap, takes time.Duration
		want       int // steps in flight
	}{{time.Second, time.Hour, 1}, {time.Second, time.Millisecond, 2}, {0, time.Hour, 2}} {
		b := withGap(t, c.gap)
		b.expect(c.takes)
		b.decoding()
		if len(b.inFlight) != c.want {
			t.Errorf("%+v: %d steps in flight", c, len(b.inFlight))
		}
		b.runOn()
	}
}

// A step that takes hardly longer than the lead is not worth waiting for.
func TestShortStepsAreNotWaitedFor(t *testing.T) {
	for takes, want := range map[time.Duration]bool{2 * time.Hour: false, 3 * time.Hour: true} {
		b := withGap(t, time.Second)
		b.opts.lead = time.Hour
		b.expect(takes)
		b.decoding()
		if waits := len(b.inFlight) == 1; waits != want {
			t.Errorf("a step of %v with a lead of an hour: waits %v", takes, waits)
		}
		b.runOn()
	}
}

// With one step in flight at most, as on a slow device, there is nothing to be early for.
func TestNothingIsLateWithOneStepInFlight(t *testing.T) {
	b := withGap(t, time.Second)
	b.expect(time.Hour)
	b.decoding()
	if b.early() <= 0 {
		t.Error("the next step may be formed at once")
	}
	b.pace = slowStep
	if b.early() > 0 {
		t.Error("a sequence alone on a slow device waits for a step that is not formed")
	}
	b.runOn()
}

// While a step runs that is longer than a chunk, the next one is formed at the last moment, and not when a quarter of the
// time is left.
func TestTheStepAfterALongOneIsFormedLast(t *testing.T) {
	b := withGap(t, time.Second)
	b.opts.LongChunk = 4 * b.opts.Chunk
	for rows, want := range map[int]time.Duration{b.opts.Chunk: 15 * time.Minute, b.opts.LongChunk: b.opts.lead} {
		step := &scheduler.Batch{Prefill: true, Step: kernels.Step{Rows: make([]kernels.Row, rows), Number: 1}}
		for range 100 {
			b.sched.Took(step, time.Hour)
		}
		b.inFlight = []stepInFlight{{batch: step, enqueued: time.Now()}}
		if before := time.Hour - b.early(); before < want || before > want+time.Minute {
			t.Errorf("the step after one of %d rows is formed %v before its end, wants %v", rows, before, want)
		}
	}
	// Generated rows of a mixed step do not make it a long one.
	step := &scheduler.Batch{Prefill: true, Generated: 8,
		Step: kernels.Step{Rows: make([]kernels.Row, 8+b.opts.Chunk), Number: 1}}
	b.sched.Took(step, time.Hour)
	b.inFlight = []stepInFlight{{batch: step, enqueued: time.Now()}}
	if before := time.Hour - b.early(); before < 15*time.Minute {
		t.Errorf("the step after a mixed one is formed %v before its end", before)
	}
	b.inFlight = nil
	b.runOn()
}

// Whoever submits while the engine waits gets a row in the step that it forms then.
func TestLateStepsTakeInWhatComes(t *testing.T) {
	b := withGap(t, time.Second)
	b.expect(time.Hour)
	b.decoding()
	b.expect(200 * time.Millisecond) // from then on
	b.submit(Request{Tokens: []int32{4, 5}, MaxTokens: 2})
	b.awaitTurn()
	commands, _, _ := b.takeCommands()
	if err := b.apply(commands, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.formAndEnqueue(); err != nil {
		t.Fatal(err)
	}
	if len(b.inFlight) != 2 || !b.inFlight[1].batch.Prefill {
		t.Errorf("%d steps in flight, and none is of the new prompt", len(b.inFlight))
	}
	b.runOn()
}

// A step that ends long before it is expected to costs nobody that time, and neither does the end of the engine.
func TestAWrongExpectationEndsSoon(t *testing.T) {
	b := withGap(t, time.Second)
	b.expect(time.Hour)
	b.decoding()
	b.run()
	s, _ := b.submit(Request{Tokens: []int32{4, 5}, MaxTokens: 1})
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("a request waits for a step that has ended")
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// If the engine's thread notices the end of a step late, the step counts as ended when it was expected to, or when it was
// last seen to run if that was later. Neither its time nor the next one's is learned. Ends that are noticed soon, or soon
// after such a guess, count as they are noticed.
func TestAnEndThatIsNoticedLate(t *testing.T) {
	const takes, late = 5 * time.Millisecond, 40 * time.Millisecond
	for name, c := range map[string]struct {
		change func(b *testEngine)
		guess  time.Duration // 0: none
	}{
		"late":            {func(*testEngine) {}, takes},
		"seen to run":     {func(b *testEngine) { b.seen = b.begun(b.inFlight[0]).Add(late / 2) }, late / 2},
		"seen just now":   {func(b *testEngine) { b.seen = time.Now().Add(time.Minute) }, 0},
		"after another":   {func(b *testEngine) { b.unsure = betweenGuesses - 1 }, 0},
		"not long before": {func(b *testEngine) { b.inFlight[0].enqueued = time.Now().Add(time.Minute) }, 0},
	} {
		b := withGap(t, time.Second)
		b.expect(takes)
		b.decoding()
		if len(b.inFlight) != 1 {
			t.Fatalf("%d steps are in flight", len(b.inFlight))
		}
		eventually(t, func() bool {
			done, err := b.events[b.inFlight[0].batch.Step.Number%depth].Done()
			return done && err == nil
		})
		time.Sleep(late)
		c.change(b)
		begun := b.begun(b.inFlight[0])
		step, err := b.completeOldest()
		if err != nil {
			t.Fatal(err)
		}
		if step.vague != (c.guess > 0) || step.vague && step.took != c.guess {
			t.Errorf("%s: it took %v, a guess is %v, wants %v", name, step.took, step.vague, c.guess)
		}
		if err := b.handOut(step); err != nil {
			t.Fatal(err)
		}
		if c.guess > 0 {
			b.afterAGuess(begun.Add(step.took), takes)
		}
		b.runOn()
	}
}

// afterAGuess checks that the next step begins at the guessed end of the one before, and that of neither a time is learned.
func (b *testEngine) afterAGuess(end time.Time, takes time.Duration) {
	b.t.Helper()
	if err := b.formAndEnqueue(); err != nil {
		b.t.Fatal(err)
	}
	if next := (stepInFlight{}); !b.begun(next).Equal(end) {
		b.t.Errorf("a step that was enqueued before begins %v after the guessed end", b.begun(next).Sub(end))
	}
	next, err := b.completeOldest()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.handOut(next); err != nil {
		b.t.Fatal(err)
	}
	if expected := b.sched.Expected(next.batch); !next.vague || expected != takes {
		b.t.Errorf("the next step counts: %v; %v are expected, before %v", !next.vague, expected, takes)
	}
}

// runOn runs the engine's loop and ends it.
func (b *testEngine) runOn() {
	b.t.Helper()
	b.run()
	if err := b.finish(); err != nil {
		b.t.Error(err)
	}
}

// On a machine that wakes the engine late, steps are formed sooner, by as much as it was late; and later again once it has
// not been for a while.
func TestStepsAreFormedSoonerWhereWakeUpsAreLate(t *testing.T) {
	b := withGap(t, time.Second)
	const takes = 40 * time.Millisecond
	step := &scheduler.Batch{Prefill: true, Step: kernels.Step{Rows: make([]kernels.Row, 1), Number: 1}}
	for range 100 {
		b.sched.Took(step, takes)
	}
	before := func() (least time.Duration) { // of several tries: the machine may be busy
		least = time.Hour
		for range 10 {
			b.inFlight = []stepInFlight{{batch: step, enqueued: time.Now()}}
			least = min(least, takes-b.early())
		}
		return least
	}
	least := before()
	if least < takes/leadPart || least > takes/leadPart+5*time.Millisecond {
		t.Fatalf("a step is formed %v before the end of one of %v", least, takes)
	}
	b.overslept.slept(30*time.Millisecond, 0)
	if now := before(); now > least+time.Millisecond {
		t.Errorf("a step is formed %v before the end after a wake-up that came early, and %v without", now, least)
	}
	b.overslept.slept(10*time.Millisecond, 30*time.Millisecond)
	if now := before(); now < 20*time.Millisecond+b.opts.lead/2-time.Millisecond || now > 25*time.Millisecond {
		t.Errorf("after a wake-up that was 20 ms late a step is formed %v before the end", now)
	}
	b.overslept.slept(time.Millisecond, time.Hour)
	if before() < takes {
		t.Error("after a wake-up that was later than a step takes, the next step waits")
	}
	for name, change := range map[string]func(c *coming){
		"some are being read":     func(c *coming) { c.reading.Store(1) },
		"the last ones were many": func(c *coming) { c.bursts = true },
	} {
		b.coming = coming{}
		change(&b.coming)
		if now := before(); now > takes/2+time.Millisecond {
			t.Errorf("in the first step, when %s, the next one is formed %v before the end of one of %v", name, now, takes)
		}
		b.coming.stepped = true
		if before() < takes {
			t.Errorf("later, when %s, the next step waits", name)
		}
	}
	b.coming = coming{}
	for range 10000 {
		b.timeStep(stepInFlight{batch: step, took: takes})
	}
	if now := before(); now > least+time.Millisecond {
		t.Errorf("long after that a step is formed %v before the end, %v before it", now, least)
	}
	b.inFlight = nil
	b.runOn()
}
