package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// A format that fails, or gives a mask without a token, ends its request with an error. The request beside it gets
// its tokens.
func TestFailedFormatEndsItsRequestAlone(t *testing.T) {
	told := protocol.Errorf(protocol.CodeFormatFailed, "send it again", "it died")
	c := nanoConfig()
	c.Suppressed = []int32{7}
	b, err := tryBuildModel(t, c, device.HostOptions{}, nano(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	q := Request{Tokens: []int32{1, 2, 3}, MaxTokens: 20, Sampling: sampled(1)}
	alone := b.complete(q)
	for name, last := range map[string]Mask{
		"an error":                  {Err: errors.New("it died")},
		"an error of the protocol":  {Err: told},
		"no token":                  allowing(16),
		"a token past the last one": {Words: []uint32{1 << 16}},
		"a suppressed token":        allowing(16, 7),
		"too many words":            {Words: []uint32{1, 1}},
		"no words":                  {},
		"no words after a draft":    {Words: []uint32{1}, Drafts: []int32{0}},
	} {
		f := newManual()
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 9, Format: f})
		beside, _ := b.submit(q)
		f.asked(t)(allowing(16, 5))
		f.asked(t)(last)
		s.must(t)
		var e *protocol.Error
		typed := errors.As(s.finish.Err, &e)
		if !errors.Is(s.finish.Err, ErrFormat) || typed != (last.Err == error(told)) || len(s.tokens) != 1 {
			t.Errorf("%s: %d tokens, %+v", name, len(s.tokens), s.finish)
		}
		if !slices.EqualFunc(beside.must(t).tokens, alone.tokens, sameToken) {
			t.Errorf("%s: the request beside it gets other tokens", name)
		}
		f.mustBeClosed(t)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
}

// A mask that does not come ends its request after the bound, and is ignored when it comes. A bound that ends while a
// later mask is being made ends nothing.
func TestMaskThatDoesNotCome(t *testing.T) {
	o := nano()
	o.maskTime = 20 * time.Millisecond
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	f := newManual()
	s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 9, Format: f})
	done := f.asked(t)
	if s.must(t); !errors.Is(s.finish.Err, ErrFormat) {
		t.Errorf("%+v", s.finish)
	}
	f.mustBeClosed(t)
	done(allowing(16, 5))
	b.complete(Request{Tokens: []int32{1}, MaxTokens: 9})
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()

	b = built(t, device.HostOptions{}, nano(), nil)
	b.run()
	f = newManual()
	s, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 2, Format: f})
	for range 3 { // the last one says whether the text is complete
		done := f.asked(t)
		b.send(command{kind: maskLate, handle: h})
		done(allowing(16, 5))
	}
	if s.must(t); s.finish.Err != nil || len(s.tokens) != 2 {
		t.Errorf("%d tokens, %+v", len(s.tokens), s.finish)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// However a request ends, its format is closed once, and the mask that was being made is ignored.
func TestFormatIsClosedOnce(t *testing.T) {
	cause := errors.New("broken")
	for name, end := range map[string]struct {
		do   func(b *testEngine, h Handle)
		want error
	}{
		"cancel":         {func(b *testEngine, h Handle) { b.Cancel(h) }, nil},
		"stop":           {func(b *testEngine, _ Handle) { b.Stop() }, ErrShutdown},
		"failure":        {func(b *testEngine, _ Handle) { b.Fail(cause) }, cause},
		"device failure": {func(b *testEngine, _ Handle) { b.failNextCall() }, ErrDevice},
	} {
		for masks := range 3 { // made before the end
			b := built(t, device.HostOptions{}, nano(), nil)
			b.run()
			f, queued := newManual(), newManual()
			s, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 50, Format: f})
			for range masks {
				f.asked(t)(allowing(16, 5, 6))
			}
			done := f.asked(t)
			b.idle()
			_, _ = b.submit(Request{Tokens: []int32{1}, MaxTokens: 50, Format: queued})
			end.do(b, h)
			if s.must(t); !errors.Is(s.finish.Err, end.want) || len(s.tokens) != masks {
				t.Errorf("%s: %d tokens, %+v", name, len(s.tokens), s.finish)
			}
			done(allowing(16, 5))
			b.Stop()
			_ = b.wait()
			select {
			case <-queued.calls:
			default: // the engine ended before it was queued
			}
			queued.mustBeClosed(t)
			f.mustBeClosed(t)
			b.baseline()
		}
	}
}

// failNextCall lets the device fail at the next call, and makes one.
func (b *testEngine) failNextCall() {
	b.h.Faults().FailAt(1, true)
	b.Heartbeat(func() {})
}

// A mask that comes twice is taken once.
func TestSecondMaskIsIgnored(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	f := newManual()
	s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 4, Format: f})
	first := f.asked(t)
	first(allowing(16, 5))
	first(Mask{Ended: true})
	second := f.asked(t)
	first(Mask{Ended: true})
	b.idle()
	second(allowing(16, 7))
	f.asked(t)(Mask{Ended: true})
	if s.must(t); s.finish.Reason != protocol.FinishStop || len(s.tokens) != 2 || s.tokens[1].ID != 7 {
		t.Errorf("%+v, %+v", s.tokens, s.finish)
	}
	f.mustBeClosed(t)
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Where the mask allows an end of sequence, it ends the request; the format is not asked again.
func TestEndOfSequenceWithinAFormat(t *testing.T) {
	b := start(t, defaults(), nil, eosToken)
	f := newManual()
	s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 9, Sampling: sampled(1), Format: f})
	f.asked(t)(allowing(96, 5, 95))
	f.asked(t)(allowing(96, eosToken))
	if s.must(t); s.finish.Reason != protocol.FinishStop || len(s.tokens) != 1 {
		t.Errorf("%+v, %+v", s.tokens, s.finish)
	}
	f.mustBeClosed(t)
}

// A text that is complete with the last token that the request may have ends with stop; one that is not, with length.
func TestLastTokenOfAFormat(t *testing.T) {
	for reason, last := range map[string]Mask{
		protocol.FinishStop: {Ended: true}, protocol.FinishLength: allowing(16, 5), "length, too": {Err: errors.New("it died")},
	} {
		b := built(t, device.HostOptions{}, nano(), nil)
		b.run()
		f := newManual()
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, Format: f})
		f.asked(t)(allowing(16, 5))
		f.asked(t)(last)
		if s.must(t); !strings.HasPrefix(reason, s.finish.Reason) || s.finish.Err != nil || len(s.tokens) != 1 {
			t.Errorf("want %s: %+v, %+v", reason, s.tokens, s.finish)
		}
		f.mustBeClosed(t)
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}
