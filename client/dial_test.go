package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

const forever = time.Hour // a Wait far beyond the test's deadline

func TestDialWaitsWhileLoading(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{Loading: 3})
	var progress []float64
	c, err := Dial(t.Context(), Options{Socket: path, Wait: forever, OnLoading: func(p float64, message string) {
		progress = append(progress, p)
		if message != "the model is being loaded" {
			t.Errorf("message %q", message)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(progress) != 3 || progress[0] != 0.25 || progress[2] != 0.75 {
		t.Errorf("progress %v", progress)
	}
}

func TestDialDoesNotWaitUnlessAsked(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{Loading: 1})
	_, err := Dial(t.Context(), Options{Socket: path})
	if !isLoading(err) {
		t.Errorf("got %v", err)
	}
}

func TestReadStatusWhileLoading(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{Loading: 100, State: protocol.StateLoading})
	status, err := ReadStatus(t.Context(), Options{Socket: path})
	if err != nil || status.State != protocol.StateLoading {
		t.Errorf("got %+v, %v", status, err)
	}
}

func TestRefusalIsFinal(t *testing.T) {
	path := socket(t)
	refusal := protocol.Errorf(protocol.CodeUnsupportedVersion, "", "speaks 2")
	listen(t, path, fakegen.Script{Refusal: refusal})
	var reported *Error
	_, err := Dial(t.Context(), Options{Socket: path, Wait: forever})
	if !errors.As(err, &reported) || reported.Code != protocol.CodeUnsupportedVersion {
		t.Errorf("Dial: %v", err)
	}
	_, err = ReadStatus(t.Context(), Options{Socket: path, Wait: forever})
	if !errors.As(err, &reported) {
		t.Errorf("ReadStatus: %v", err)
	}
}

// TestOnWait: the callback gets the reason for each further attempt.
func TestOnWait(t *testing.T) {
	var reasons []error
	attempts := 0
	_, err := retry(t.Context(), Options{Wait: forever, OnWait: func(err error) { reasons = append(reasons, err) }},
		func() (int, error) {
			if attempts++; attempts == 3 {
				return 0, nil
			}
			return 0, errSocketAbsent
		})
	if err != nil || len(reasons) != 2 || !errors.Is(reasons[1], errSocketAbsent) {
		t.Errorf("%v, reasons %v", err, reasons)
	}
}

// TestRetry: errors that may pass are retried, others are not.
func TestRetry(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err   error
		tries int
	}{
		{errSocketAbsent, 3},
		{refused, 3},
		{syscall.EAGAIN, 3},
		{ErrNoAnswer, 3},
		{protocol.Errorf(protocol.CodeLoading, "", "loading"), 3},
		{errNoDirectory, 1},
		{ErrDenied, 1},
		{ErrConfig, 1},
		{protocol.Errorf(protocol.CodeDraining, "", "draining"), 1},
	} {
		tries := 0
		_, err := retry(t.Context(), Options{Wait: forever}, func() (int, error) {
			if tries++; tries == 3 {
				return 0, nil
			}
			return 0, c.err
		})
		if tries != c.tries || (err == nil) != (c.tries == 3) {
			t.Errorf("%v: %d tries, ended with %v", c.err, tries, err)
		}
	}
}

func TestRetryEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := retry(ctx, Options{Wait: forever}, func() (int, error) {
		cancel()
		return 0, errSocketAbsent
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDialEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		g := fakegen.New(fakegen.Script{Silent: true})
		go g.ServeConn(theirs)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			received[*protocol.Hello](t, g)
			cancel()
		}()
		begin := time.Now()
		if _, err := greet(ctx, ours, false); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("took %s", took)
		}
	})
}

func TestConnectionOutlivesTheHelloDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := connect(t, fakegen.Script{})
		defer c.Close()
		time.Sleep(2 * answerTime)
		if text, err := collect(t.Context(), c, Request{Prompt: "late"}); err != nil || text != "late" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

func TestDialWithoutListener(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "generator.sock")
	// A missing directory ends Dial at once, despite Wait.
	_, err := Dial(t.Context(), Options{Socket: missing, Wait: forever})
	if !errors.Is(err, ErrNoGenerator) || !errors.Is(err, errNoDirectory) || !strings.Contains(err.Error(), missing) {
		t.Errorf("no directory: %v", err)
	}
	absent := socket(t)
	_, err = Dial(t.Context(), Options{Socket: absent})
	if !errors.Is(err, ErrNoGenerator) || !mayRetry(err) || !strings.Contains(err.Error(), absent) {
		t.Errorf("no socket: %v", err)
	}
	stale := socket(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Dial(t.Context(), Options{Socket: stale})
	if !errors.Is(err, ErrNoGenerator) || !mayRetry(err) || !strings.Contains(err.Error(), stale) {
		t.Errorf("stale socket: %v", err)
	}
}

func TestDialBadPaths(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, t.TempDir(), "@abstract", "/tmp/" + strings.Repeat("x", 103)} {
		_, err := Dial(t.Context(), Options{Socket: path, Wait: forever})
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%.20s: %v", path, err)
		}
	}
}

func TestDialDenied(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{})
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		// Root may connect to anything, so this thread takes another file system
		// uid; the thread ends with its goroutine.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			got <- err
			return
		}
		_, err := Dial(t.Context(), Options{Socket: path, Wait: forever})
		got <- err
	}()
	if err := <-got; !errors.Is(err, ErrDenied) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidUTF8IsRefusedWithoutClosing(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	for _, req := range []Request{{Prompt: "a\xff"}, {Prompt: "a", Stop: []string{"\xff"}},
		{Messages: []Message{{Role: "u"}}, Template: map[string]any{"x": "\xff"}}} {
		var reported *Error
		_, err := collect(t.Context(), c, req)
		if !errors.As(err, &reported) || reported.Code != protocol.CodeBadRequest {
			t.Errorf("got %v", err)
		}
	}
	if _, err := c.Tokenize(t.Context(), "\xff"); err == nil {
		t.Error("Tokenize accepted invalid UTF-8")
	}
	if text, err := collect(t.Context(), c, Request{Prompt: "good"}); err != nil || text != "good" {
		t.Errorf("the next request: %q, %v", text, err)
	}
}

func TestPromptTooLongForAFrame(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	var reported *Error
	_, err := collect(t.Context(), c, Request{Prompt: strings.Repeat("x", protocol.MaxFrame)})
	if !errors.As(err, &reported) || reported.Code != protocol.CodePromptTooLong {
		t.Errorf("got %v", err)
	}
}
