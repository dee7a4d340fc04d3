//go:build linux

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/protocol"
)

// heat is a GPU with a known temperature and nothing else.
type heat struct{ closed chan struct{} }

func (h heat) Read() []gpu.Reading {
	celsius := 61.5
	return []gpu.Reading{{Temperature: &celsius}}
}
func (h heat) Close() { close(h.closed) }

// ask reads the metrics from a Unix socket.
func ask(t *testing.T, path string) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	r, err := c.Get("http://reel/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// With --metrics the generator has metrics of its requests, and of its GPU while it runs.
func TestMetrics(t *testing.T) {
	f := newFixture(t)
	path, graphics := filepath.Join(filepath.Dir(f.socket), "m.sock"), heat{make(chan struct{})}
	f.program.load = func(ctx context.Context, o config.Options, progress func(float64, string)) (*assembly.Loaded,
		error) {
		l, err := f.load(ctx, o, progress)
		h := hardware.Hardware{OpenReader: func() (hardware.Reader, error) { return graphics, nil }}
		l.GPU = assembly.ReadGPU(h, o)
		return l, err
	}
	f.engine.hold = true
	f.start("--metrics", "unix:"+path)
	conn, frames := f.connect()
	prompt := "ab"
	f.send(conn, &protocol.Generate{ID: 1, Prompt: &prompt})
	f.read(frames)
	f.engine.finish(engine.Finish{Reason: protocol.FinishLength, Timing: protocol.Timing{TTFTMS: 2, TotalMS: 3}})
	f.read(frames)
	f.send(conn, &protocol.Generate{ID: 1, Prompt: &prompt, Temperature: new(-1.0)})
	f.read(frames)
	body := ask(t, path)
	for _, want := range []string{`reel_requests_total{finish="length"} 1`,
		"reel_time_to_first_token_seconds_count 1", `reel_errors_total{code="bad_request"} 1`,
		"reel_connections_total 1", `reel_state{state="ready"} 1`, `reel_gpu_temperature_celsius{gpu="0"} 61.5`} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, body)
		}
	}
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
	<-graphics.closed
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the address still answers")
	}
}

// Without --metrics there is no listener. An address that other machines reach is refused.
func TestMetricsAreAskedFor(t *testing.T) {
	for _, address := range []string{"0.0.0.0:9464", ":9464", "example.org:9464"} {
		f := newFixture(t)
		f.start("--metrics", address)
		if code := f.wait(); code != failure.ExitConfig || !strings.Contains(f.stderr.String(), "127.0.0.1:9464") {
			t.Errorf("%s: exit code %d: %s", address, code, f.stderr.String())
		}
	}
	taken := filepath.Join(t.TempDir(), "m.sock")
	l, err := net.Listen("unix", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newFixture(t)
	f.start("--metrics", "unix:"+taken)
	if code := f.wait(); code != failure.ExitConfig || !strings.Contains(f.stderr.String(), "another program listens") {
		t.Errorf("a socket in use: exit code %d: %s", code, f.stderr.String())
	}
}
