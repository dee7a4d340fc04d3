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

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// clock drives a spinning reader through simulated time, without a socket.
type clock struct {
	spinningReader
	at      time.Time
	arrives time.Time     // arrival of the next token
	late    time.Duration // delay of each timer
	awake   time.Duration // total time spent spinning
}

const look = time.Microsecond // simulated time of one poll

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

// token simulates a token that arrives after gap, and reads it. It reports whether the
// reader was spinning at that time.
func (c *clock) token(gap time.Duration) (met bool) {
	c.arrives = c.at.Add(gap)
	before := c.awake
	c.await()
	met = c.awake > before && !c.at.Before(c.arrives)
	c.at = later(c.at, c.arrives)
	c.pace.arrived(c.at)
	return met
}

// TestSpinTime: a reader spins for at most a tenth of the time, at any pace, and returns
// each token as soon as it arrives.
func TestSpinTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	around := func(gap time.Duration, share float64) func(int) time.Duration {
		return func(int) time.Duration { return gap + time.Duration(float64(gap)*share*(random.Float64()-0.5)) }
	}
	for name, c := range map[string]struct {
		gap  func(i int) time.Duration
		late time.Duration
		met  float64 // least share of tokens that find the reader spinning
		none bool    // the reader never spins
	}{
		"steady":             {gap: around(3300*time.Microsecond, 0), met: 0.98},
		"steady within 2%":   {gap: around(3300*time.Microsecond, 0.02), met: 0.98},
		"timers 100 µs late": {gap: around(3300*time.Microsecond, 0.02), late: 100 * time.Microsecond, met: 0.98},
		"timers 1 ms late":   {gap: around(3300*time.Microsecond, 0.02), late: time.Millisecond},
		"within 10%":         {gap: around(3300*time.Microsecond, 0.1), met: 0.4},
		"slow":               {gap: around(19*time.Millisecond, 0.01), met: 0.98},
		"every tenth is late": {gap: func(i int) time.Duration {
			return 3*time.Millisecond + time.Duration(i%10/9)*time.Millisecond
		}, met: 0.8},
		"always just too late": {gap: func(i int) time.Duration {
			return 3*time.Millisecond + time.Duration(i)*200*time.Microsecond
		}},
		"faster and faster": {gap: func(i int) time.Duration {
			return max(0, 15*time.Millisecond-time.Duration(i)*20*time.Microsecond)
		}},
		"unsteady": {gap: func(i int) time.Duration {
			return time.Duration(1+i%4) * 1500 * time.Microsecond
		}, none: true},
		"at random": {gap: around(3300*time.Microsecond, 1.5)},
		"steps of one to four tokens": {gap: func(i int) time.Duration {
			if i%4 == 0 || i%7 == 0 {
				return 3500 * time.Microsecond
			}
			return 12 * time.Microsecond
		}, met: 0.33},
		"bursts of two": {gap: func(i int) time.Duration {
			return time.Duration(i%2) * 25 * time.Millisecond
		}, none: true},
		"too fast": {gap: around(900*time.Microsecond, 0.01), none: true},
		"too slow": {gap: around(21*time.Millisecond, 0.01), none: true},
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
			// The last poll of a window may end after the window.
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

// TestPauseBetweenStreams: a reader does not spin through a pause, and meets the second
// token after it.
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

func TestNeverSpins(t *testing.T) {
	c := newClock()
	c.neverSpins = true
	for range 100 {
		c.token(3 * time.Millisecond)
	}
	if c.awake > 0 {
		t.Errorf("awake for %v", c.awake)
	}
}

// sockets returns a spinning reader, set up for that number of processors, and the other
// end of its socket.
func sockets(t *testing.T, processors int) (*spinningReader, net.Conn) {
	t.Helper()
	ours, theirs := pair(t)
	a, ok := newSpinningReader(ours, processors).(*spinningReader)
	if !ok {
		t.Fatal("a socket was left as it was")
	}
	t.Cleanup(func() { _ = a.Close() })
	return a, theirs
}

// pair returns both ends of a socket.
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

func TestNewSpinningReader(t *testing.T) {
	for processors, neverSpins := range map[int]bool{2: true, spinProcessors - 1: true, spinProcessors: false} {
		if a, _ := sockets(t, processors); a.neverSpins != neverSpins {
			t.Errorf("with %d processors neverSpins is %v", processors, a.neverSpins)
		}
	}
	ours, _ := pair(t)
	if newSpinningReader(ours, 1) != ours {
		t.Error("a blocked thread would occupy the only processor")
	}
	pipe, _ := net.Pipe()
	if newSpinningReader(pipe, 8) != connection(pipe) {
		t.Error("a pipe was taken for a socket")
	}
}

// steady makes a expect a token every gap, as if the last had arrived just now.
func (a *spinningReader) steady(gap time.Duration) {
	for i := range a.pace.gaps {
		a.pace.gaps[i] = gap
	}
	a.pace.n, a.pace.last = paceGaps, time.Now()
}

// TestSpinningReaderReads: bytes that arrive before, during and after spinning are all
// read, in order, and so is the end.
func TestSpinningReaderReads(t *testing.T) {
	a, theirs := sockets(t, spinProcessors)
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

// TestCloseEndsARead: Close ends a Read that waits, with or without a timeout.
func TestCloseEndsARead(t *testing.T) {
	for name, due := range map[string]time.Duration{"with a timeout": time.Hour, "without": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			a, _ := sockets(t, spinProcessors)
			a.steady(5 * time.Millisecond)
			a.pace.last = a.pace.last.Add(due)
			ended := make(chan error)
			go func() {
				_, err := a.Read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond) // usually long enough for Read to wait
			_ = a.Close()
			fails(t, "read", ended)
		})
	}
}

// TestWriteEnds: a write fails after its timeout if the other side does not read.
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

// fails waits for a call to end with an error.
func fails(t *testing.T, call string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("the %s succeeded", call)
		}
	case <-deadline(t):
		t.Fatalf("the %s does not end", call)
	}
}

// TestSpinIsOptIn: without the option a client reads from the plain socket.
func TestSpinIsOptIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(spinProcessors))
	path := socket(t)
	listen(t, path, fakegen.Script{})
	c, err := Dial(t.Context(), Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.conn.(*net.UnixConn); !ok {
		t.Errorf("reads from a %T", c.conn)
	}
}

// TestEndsOverASocket: over a socket with a spinning reader, requests end in the same ways.
func TestEndsOverASocket(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(spinProcessors))
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
			listen(t, path, fakegen.Script{
				Ending: c.ending, Error: protocol.Errorf(protocol.CodeInternal, "", "as asked")})
			client, err := Dial(t.Context(), Options{Socket: path, Spin: true})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, ok := client.conn.(*spinningReader); !ok {
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
			var reported *Error
			if tokens != 4 || !(errors.Is(err, c.want) || errors.As(c.want, &reported) && errors.As(err, &reported)) {
				t.Errorf("%d tokens, then %v", tokens, err)
			}
		})
	}
}
