package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"reel/client/internal/fakegen"
	"reel/protocol"
)

// clock drives an attentive reader through simulated time, without a socket.
type clock struct {
	attentive
	at      time.Time
	arrives time.Time     // the next token
	late    time.Duration // by which a timer wakes too late
	awake   time.Duration // in all
}

const look = time.Microsecond // that it takes to look once

func newClock() *clock {
	c := &clock{at: time.Unix(1, 0)}
	c.now = func() time.Time { return c.at }
	c.ready = func(timeout time.Duration) bool {
		end := c.at.Add(timeout + c.late)
		if timeout == 0 {
			c.awake += look
			end = c.at.Add(look)
		}
		if c.arrives.Before(end) && timeout > 0 {
			end = later(c.at, c.arrives)
		}
		c.at = end
		return !c.arrives.After(c.at)
	}
	return c
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// token has the next one arrive after gap, and reads it. It returns whether the
// reader was awake then.
func (c *clock) token(gap time.Duration) (met bool) {
	c.arrives = c.at.Add(gap)
	before := c.awake
	c.await()
	met = c.awake > before && !c.at.Before(c.arrives)
	c.at = later(c.at, c.arrives)
	c.pace.came(c.at)
	return met
}

// A reader is awake for a tenth of the time at most, however tokens come, and hands
// each on as soon as it is there.
func TestAwakeTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	around := func(gap time.Duration, share float64) func(int) time.Duration {
		return func(int) time.Duration { return gap + time.Duration(float64(gap)*share*(random.Float64()-0.5)) }
	}
	for name, c := range map[string]struct {
		gap  func(i int) time.Duration
		late time.Duration
		met  float64 // share of the tokens, at least
		none bool    // it is never awake
	}{
		"steady":              {gap: around(3300*time.Microsecond, 0), met: 0.98},
		"steady within 2%":    {gap: around(3300*time.Microsecond, 0.02), met: 0.98},
		"timers 100 µs late":  {gap: around(3300*time.Microsecond, 0.02), late: 100 * time.Microsecond, met: 0.98},
		"timers 1 ms late":    {gap: around(3300*time.Microsecond, 0.02), late: time.Millisecond},
		"within 10%":          {gap: around(3300*time.Microsecond, 0.1), met: 0.4},
		"slow":                {gap: around(19*time.Millisecond, 0.01), met: 0.98},
		"every tenth is late": {gap: func(i int) time.Duration { return 3*time.Millisecond + time.Duration(i%10/9)*time.Millisecond }, met: 0.8},
		"always just too late": {gap: func(i int) time.Duration {
			return 3*time.Millisecond + time.Duration(i)*200*time.Microsecond
		}},
		"faster and faster": {gap: func(i int) time.Duration { return max(0, 15*time.Millisecond-time.Duration(i)*20*time.Microsecond) }},
		"unsteady":          {gap: func(i int) time.Duration { return time.Duration(1+i%4) * 1500 * time.Microsecond }, none: true},
		"at random":         {gap: around(3300*time.Microsecond, 1.5)},
		"bursts of two":     {gap: func(i int) time.Duration { return time.Duration(i%2) * 6 * time.Millisecond }, none: true},
		"too fast":          {gap: around(900*time.Microsecond, 0.01), none: true},
		"too slow":          {gap: around(21*time.Millisecond, 0.01), none: true},
	} {
		t.Run(name, func(t *testing.T) {
			const tokens = 1000
			r := newClock()
			r.late = c.late
			begin, met := r.at, 0
			for i := range tokens {
				due := r.at.Add(c.gap(i))
				if r.token(due.Sub(r.at)) {
					met++
				}
				if wait := r.at.Sub(due); wait > look {
					t.Fatalf("token %d waited %v", i, wait)
				}
			}
			// The last look of a window may end after it.
			if took := r.at.Sub(begin); r.awake > took/10+tokens*look {
				t.Errorf("awake for %v of %v", r.awake, took)
			}
			if c.none && r.awake > 0 {
				t.Errorf("awake for %v", r.awake)
			}
			if float64(met) < c.met*tokens {
				t.Errorf("awake for %d of %d tokens", met, tokens)
			}
		})
	}
}

// A stream that stands still keeps nobody awake, and the next one is met at once.
func TestPauseBetweenStreams(t *testing.T) {
	c := newClock()
	for range 20 {
		c.token(3 * time.Millisecond)
	}
	before := c.awake
	if c.token(time.Hour); c.awake-before > 300*time.Microsecond+look {
		t.Errorf("awake for %v of an hour", c.awake-before)
	}
	if !c.token(3 * time.Millisecond) {
		t.Error("asleep when the second token after a pause came")
	}
}

// Who is to doze is not awake before there is something to read.
func TestDozes(t *testing.T) {
	c := newClock()
	c.dozes = true
	for range 100 {
		c.token(3 * time.Millisecond)
	}
	if c.awake > 0 {
		t.Errorf("awake for %v", c.awake)
	}
}

// sockets returns an attentive socket, as with so many processors, and its other side.
func sockets(t *testing.T, processors int) (*attentive, net.Conn) {
	t.Helper()
	ours, theirs := pair(t)
	a, ok := attend(ours, processors).(*attentive)
	if !ok {
		t.Fatal("a socket was left as it was")
	}
	t.Cleanup(func() { _ = a.Close() })
	return a, theirs
}

// pair returns both sides of a socket.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", socket(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

func TestWhoIsAttentive(t *testing.T) {
	for processors, dozes := range map[int]bool{2: true, awakeProcessors - 1: true, awakeProcessors: false} {
		if a, _ := sockets(t, processors); a.dozes != dozes {
			t.Errorf("with %d processors dozes is %v", processors, a.dozes)
		}
	}
	ours, _ := pair(t)
	if attend(ours, 1) != ours {
		t.Error("a thread that blocks keeps the only processor")
	}
	pipe, _ := net.Pipe()
	if attend(pipe, 8) != connection(pipe) {
		t.Error("a pipe was taken for a socket")
	}
}

// steady has a believe that something comes every gap, and came at this moment.
func (a *attentive) steady(gap time.Duration) {
	for i := range a.pace.gaps {
		a.pace.gaps[i] = gap
	}
	a.pace.n, a.pace.last = paceGaps, time.Now()
}

// Whenever a byte comes, before, while or after the reader is awake, it is read, in
// order; and so is the end.
func TestAttentiveReads(t *testing.T) {
	a, theirs := sockets(t, awakeProcessors)
	const bytes = 60
	next := make(chan time.Duration)
	go func() {
		defer theirs.Close()
		for i := byte(0); i < bytes; i++ {
			time.Sleep(<-next)
			if _, err := theirs.Write([]byte{i}); err != nil {
				t.Error(err)
			}
		}
		<-next
	}()
	for i := byte(0); i < bytes; i++ {
		a.steady(5 * time.Millisecond)
		next <- time.Duration(i%7) * time.Millisecond
		b := make([]byte, 4)
		if n, err := a.Read(b); n != 1 || err != nil || b[0] != i {
			t.Fatalf("byte %d: read %d, %v: %d", i, n, err, b[0])
		}
	}
	a.steady(5 * time.Millisecond)
	next <- 0
	if n, err := a.Read(make([]byte, 4)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: read %d, %v", n, err)
	}
}

// Close ends a Read, whether it waits for a time or without end.
func TestCloseEndsARead(t *testing.T) {
	for name, due := range map[string]time.Duration{"for a time": time.Hour, "without end": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			a, _ := sockets(t, awakeProcessors)
			a.steady(5 * time.Millisecond)
			a.pace.last = a.pace.last.Add(due)
			ended := make(chan error)
			go func() {
				_, err := a.Read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond) // mostly long enough for it to wait
			_ = a.Close()
			fails(t, "read", ended)
		})
	}
}

// A write to which the other side pays no attention ends.
func TestWriteEnds(t *testing.T) {
	ours, _ := pair(t)
	file, err := blocking(ours.(*net.UnixConn), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := file.Write(make([]byte, 16<<20))
		ended <- err
	}()
	fails(t, "write", ended)
}

// fails waits for the end of a call, which is to be an error.
func fails(t *testing.T, call string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("the %s went well", call)
		}
	case <-deadline(t):
		t.Fatalf("the %s goes on", call)
	}
}

// Over a socket whose reader is attentive a request comes to the same ends.
func TestEndsOverASocket(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(awakeProcessors))
	for _, c := range []struct {
		ending fakegen.Ending
		leave  func(cancel context.CancelFunc, c *Client)
		want   error
	}{
		{ending: fakegen.Finish},
		{ending: fakegen.Drop, want: ErrConnectionLost},
		{ending: fakegen.Fail, want: new(Error)},
		{ending: fakegen.Hang, want: context.Canceled, leave: func(cancel context.CancelFunc, _ *Client) { cancel() }},
		{ending: fakegen.Mute, want: ErrClosed, leave: func(_ context.CancelFunc, c *Client) { c.Close() }},
	} {
		t.Run(string(c.ending), func(t *testing.T) {
			path := socket(t)
			listen(t, path, fakegen.Script{Ending: c.ending, Error: protocol.Errorf(protocol.CodeInternal, "", "as asked")})
			client, err := Dial(t.Context(), Options{Socket: path})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, ok := client.conn.(*attentive); !ok {
				t.Fatalf("reads from a %T", client.conn)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tokens := 0
			for tok, e := range client.Generate(ctx, Request{Prompt: "to be or not"}) {
				if err = e; e != nil {
					break
				}
				if tok.Index != tokens {
					t.Errorf("token %d came as number %d", tok.Index, tokens)
				}
				if tokens++; tokens == 4 && c.leave != nil {
					c.leave(cancel, client)
				}
			}
			var said *Error
			if tokens != 4 || !(errors.Is(err, c.want) || errors.As(c.want, &said) && errors.As(err, &said)) {
				t.Errorf("%d tokens, then %v", tokens, err)
			}
		})
	}
}
