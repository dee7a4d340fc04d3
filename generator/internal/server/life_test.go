package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/unixsocket"
	"reel.internal/reel/protocol"
)

func TestLoading(t *testing.T) {
	f := start(t, nil)
	f.SetProgress(0.25, "weights")
	c := f.dial()
	c.send(&protocol.Hello{Version: 1})
	e := c.wantError(protocol.CodeLoading)
	if e.Progress == nil || *e.Progress != 0.25 || e.Message != "the model is being loaded: weights, 25%" {
		t.Errorf("got %+v", e)
	}
	c.send(&protocol.StatusRequest{})
	if st := expect[protocol.Status](c); st.State != protocol.StateLoading || st.Progress != 0.25 ||
		st.PID != os.Getpid() || st.Version != "test" || st.Connections != 1 {
		t.Errorf("got %+v", st)
	}
	c.send(generate(1, "ab", 1))
	c.wantError(protocol.CodeHelloRequired)
	f.SetReady(f.model())
	c.send(&protocol.Hello{Version: 1})
	expect[protocol.Welcome](c)
	c.send(&protocol.Hello{Version: 1}) // hello may be repeated
	expect[protocol.Welcome](c)
	c.send(&protocol.StatusRequest{})
	if st := expect[protocol.Status](c); st.State != protocol.StateReady || st.Model != "fake" ||
		st.Device != "none" || st.KV.Pages != 8 || st.Limits.Context != testContext {
		t.Errorf("got %+v", st)
	}
}

// Clients that are connected at a failure are told of it, and so are later ones.
func TestFail(t *testing.T) {
	for want, c := range map[string]struct {
		err    error
		closes bool
	}{
		protocol.CodeInternal: {errors.New("the weights are damaged"), false},
		protocol.CodeDeviceFailed: {
			protocol.Errorf(protocol.CodeDeviceFailed, "restart it", "the device is gone"), true,
		},
	} {
		f := start(t, nil)
		early, late := f.dial(), f.dial()
		early.send(&protocol.StatusRequest{})
		expect[protocol.Status](early)
		f.Fail(c.err)
		early.wantError(want)
		f.SetReady(f.model()) // too late
		if late.send(&protocol.StatusRequest{}); statusAfterError(late).State != protocol.StateFailed {
			t.Error("status does not report the failure")
		}
		must(t, f.Drain(context.Background())) // keeps the reason
		late.send(&protocol.Hello{Version: 1})
		late.wantError(want)
		if c.closes {
			late.wantClosed()
		}
		f.stop()
	}
}

// statusAfterError reads the status, and skips an error in front of it.
func statusAfterError(c *testClient) *protocol.Status {
	c.t.Helper()
	for {
		msg, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		if st, ok := msg.(*protocol.Status); ok {
			return st
		}
	}
}

// drain starts a drain and waits until status shows it. The channel gets the result.
func (f *fixture) drain(ctx context.Context) <-chan error {
	f.t.Helper()
	drained := make(chan error, 1)
	go func() { drained <- f.Drain(ctx) }()
	eventually(f.t, "the server drains", func() bool { return f.Status().State == protocol.StateDraining })
	return drained
}

func TestDrain(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(1)
	idle, busy := f.client(), f.client()
	busy.send(generate(1, "ab", 3))
	expect[protocol.Token](busy)
	drained := f.drain(context.Background())
	busy.send(generate(2, "ab", 3))
	if e := busy.wantError(protocol.CodeDraining); *e.ID != 2 {
		t.Errorf("got %+v", e)
	}
	idle.send(&protocol.StatusRequest{})
	if st := expect[protocol.Status](idle); st.State != protocol.StateDraining || st.Requests.Running != 1 {
		t.Errorf("got %+v", st)
	}
	idle.send(&protocol.Hello{Version: 1})
	idle.wantError(protocol.CodeDraining)
	idle.send(&protocol.Tokenize{Text: "ab"})
	expect[protocol.Tokens](idle)
	eventually(t, "the socket is gone", func() bool {
		_, err := net.Dial("unix", f.opts.Socket)
		return errors.Is(err, os.ErrNotExist)
	})
	select {
	case err := <-drained:
		t.Fatalf("drained with a request running: %v", err)
	default:
	}
	f.engine.allow(-1)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	f.stop()
	got, err := busy.collect(1)
	if err != nil || got[1].done == nil || got[1].text != "ba" {
		t.Errorf("the running request got %+v, %v", got[1], err)
	}
	idle.wantClosed()
	busy.wantClosed()
}

// A connection that is accepted while the drain begins is rejected.
func TestNoConnectionWhileDraining(t *testing.T) {
	f := ready(t, nil)
	must(t, f.Drain(context.Background()))
	if _, e := f.add(nil, peer{}); e == nil || e.Code != protocol.CodeDraining {
		t.Errorf("got %v", e)
	}
}

// A request that does not finish in time gets a typed error.
func TestDrainTimesOut(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(1)
	c := f.client()
	c.send(generate(1, "ab", 3))
	expect[protocol.Token](c)
	ctx, cancel := context.WithCancel(context.Background())
	drained := f.drain(ctx)
	cancel()
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.engine.stop(engine.ErrShutdown)
	c.wantError(protocol.CodeShutdown)
	c2 := f.Status()
	if c2.Requests.Failed != 1 {
		t.Errorf("status counts %+v", c2.Requests)
	}
}

// Close ends with its context, though a client does not read and the engine does not end
// its requests.
func TestCloseHasAnEnd(t *testing.T) {
	f := ready(t, func(b *bounds) { b.stallTimeout = time.Hour })
	slow := f.flood(10)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	eventually(t, "its connection is closed", func() bool { return f.Status().Connections == 0 })
	slow.wantClosed()
	if err := <-f.served; err != nil {
		t.Error(err)
	}
	f.end.Do(func() { f.engine.stop(nil) })
}

func TestListenTwice(t *testing.T) {
	f := start(t, nil)
	second := New(f.opts)
	if err := second.Listen(); !errors.Is(err, unixsocket.ErrInUse) {
		t.Errorf("got %v", err)
	}
	f.SetReady(f.model())
	f.works()
}

// Serve continues after a failed accept, for example for lack of descriptors.
func TestAcceptFails(t *testing.T) {
	s := newServer(Options{Socket: filepath.Join(t.TempDir(), "g.sock"), Logger: zerolog.Nop()}, defaultBounds())
	must(t, s.Listen())
	fails, accept := 3, s.accept
	s.accept = func() (*net.UnixConn, error) {
		if fails--; fails >= 0 {
			return nil, syscall.EMFILE
		}
		return accept()
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	conn, err := net.Dial("unix", s.opts.Socket)
	must(t, err)
	c := &testClient{t: t, conn: conn.(*net.UnixConn), frames: protocol.FrameReader{R: conn}}
	c.send(&protocol.StatusRequest{})
	expect[protocol.Status](c)
	must(t, s.Close(context.Background()))
	must(t, <-served)
}
