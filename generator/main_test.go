//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/protocol"
)

func TestSignalDrains(t *testing.T) {
	f := newFixture(t)
	frames := f.hangs()
	f.signals <- syscall.SIGTERM
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(f.socket); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it still listens")
		}
	}
	f.engine.finish(engine.Finish{Reason: protocol.FinishLength})
	if done, ok := f.read(frames).(*protocol.Done); !ok || done.FinishReason != protocol.FinishLength {
		t.Errorf("got %+v", done)
	}
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

// A request that has not finished within the patience gets a typed error; the exit code is 0.
func TestDrainHasAnEnd(t *testing.T) {
	f := newFixture(t)
	f.program.patience = time.Millisecond
	frames := f.hangs()
	f.signals <- syscall.SIGTERM
	if e, ok := f.read(frames).(*protocol.Error); !ok || e.Code != protocol.CodeShutdown {
		t.Errorf("got %+v", e)
	}
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	f := newFixture(t)
	frames := f.hangs()
	f.signals <- syscall.SIGINT
	f.signals <- syscall.SIGINT
	if e, ok := f.read(frames).(*protocol.Error); !ok || e.Code != protocol.CodeShutdown {
		t.Errorf("got %+v", e)
	}
	if code := f.wait(); code != failure.ExitFailure {
		t.Errorf("exit code %d", code)
	}
}

// After the drain pages are written to files, within a bound. A second signal ends that, and is a clean stop too.
func TestStopFlushes(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		f, bound := newFixture(t), time.Duration(0)
		f.program.load = func(
			ctx context.Context, o config.Options, progress func(float64, string),
		) (*assembly.Loaded, error) {
			l, err := f.load(ctx, o, progress)
			l.Flush = func(ctx context.Context) {
				end, _ := ctx.Deadline()
				if bound = time.Until(end); hangs {
					f.signals <- syscall.SIGTERM
					select {}
				}
			}
			return l, err
		}
		f.start()
		f.connect()
		f.signals <- syscall.SIGTERM
		if code := f.wait(); code != 0 || bound <= 0 || bound > 2*time.Second {
			t.Errorf("hangs %v: exit code %d, bound %v: %s", hangs, code, bound, f.stderr.String())
		}
	}
}

func TestIdleStopsAtOnce(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.connect()
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

// Two signals at once, as timeout(1) sends them, are a clean stop if nothing runs.
func TestIdleStopsCleanlyAtTwoSignals(t *testing.T) {
	f := newFixture(t)
	f.signals <- syscall.SIGTERM
	f.signals <- syscall.SIGTERM
	f.start()
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

// SIGHUP reloads the settings, and ends nothing.
func TestHangUpIsOutlived(t *testing.T) {
	f := newFixture(t)
	hangups := make(chan os.Signal)
	f.program.hangups = hangups
	f.start()
	hangups <- syscall.SIGHUP
	hangups <- syscall.SIGHUP
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 || strings.Count(f.stderr.String(), "settings reloaded") != 2 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

// A signal while the model is loading does not wait for the load.
func TestSignalWhileLoading(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	defer close(release)
	f.program.load = func(context.Context, config.Options, func(float64, string)) (*assembly.Loaded, error) {
		<-release
		return nil, errors.New("too late")
	}
	f.signals <- syscall.SIGTERM
	f.start()
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"a model that is unusable": {config.Refuse(config.ErrConfig, "no such directory"), failure.ExitConfig},
		"a model that is written": {config.Refuse(config.ErrConfig, "it cannot be served: %w", weights.ErrChanged),
			failure.ExitTempFail},
		"a load that fails": {errors.New("out of memory"), failure.ExitFailure},
	} {
		f := newFixture(t)
		f.program.load = func(context.Context, config.Options, func(float64, string)) (*assembly.Loaded, error) {
			return nil, c.err
		}
		f.start()
		if code := f.wait(); code != c.want || !strings.Contains(f.stderr.String(), c.err.Error()) {
			t.Errorf("%s: exit code %d, stderr %s", name, code, f.stderr.String())
		}
	}
}

// A failed device ends the generator, and its clients are told.
func TestDeviceFails(t *testing.T) {
	f := newFixture(t)
	frames := f.hangs()
	f.engine.fail <- errors.Join(engine.ErrDevice, errors.New("a launch failed"))
	for range 2 { // for the request and for the connection
		if e, ok := f.read(frames).(*protocol.Error); !ok || e.Code != protocol.CodeDeviceFailed {
			t.Errorf("got %+v", e)
		}
	}
	if code := f.wait(); code != failure.ExitFailure {
		t.Errorf("exit code %d", code)
	}
}

func TestSocketIsRefused(t *testing.T) {
	for name, occupy := range map[string]func(path string) error{
		"a file":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a symlink": func(path string) error { return os.Symlink("/dev/null", path) },
		"a live one": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		},
	} {
		f := newFixture(t)
		if err := occupy(f.socket); err != nil {
			t.Fatal(err)
		}
		f.start()
		if code := f.wait(); code != failure.ExitConfig || !strings.Contains(f.stderr.String(), f.socket) {
			t.Errorf("%s: exit code %d, stderr %s", name, code, f.stderr.String())
		}
		if _, err := os.Lstat(f.socket); err != nil {
			t.Errorf("%s was removed", name)
		}
	}
}

// A flag wins over the environment, which wins over the default.
func TestSettings(t *testing.T) {
	f := newFixture(t)
	env := map[string]string{"REEL_MAX_BATCH": "3", "REEL_MAX_SEQ_LEN": "99", "REEL_MODEL": "/m",
		"REEL_NAME": "org/m",
		"REEL_GPU":  "1", "REEL_DEVICE": "host", "REEL_LOG_LEVEL": "error", "REEL_LOG_FORMAT": "json",
		"REEL_SOCKET":     "unused",
		"REEL_PRECAPTURE": "1-3,64", "REEL_GRAPH_MEMORY": "1048576", "REEL_MAX_GRAPHS": "7", "REEL_ROLLER": "off",
		"REEL_CACHE_SCOPE": "all", "REEL_REREAD": "chat", "REEL_HOST_CACHE": "8GiB", "REEL_CACHE_DIR": "/c",
		"REEL_CACHE_DIR_BYTES": "1GiB", "REEL_CHAT_TEMPLATE": "/t", "REEL_DRAFT": "lookup",
		"REEL_DRAFT_TOKENS": "3", "REEL_DRAFT_PLAN": "always", "REEL_TOKEN_GAP": "15ms",
		"REEL_MAX_CONNECTIONS": "1000", "REEL_MAX_QUEUE": "700"}
	f.program.env = func(name string) string { return env[name] }
	f.start("--max-batch", "5")
	want := config.Options{Model: "/m", Name: "org/m", Socket: f.socket, Device: "host", GPU: 1, MaxSeqLen: 99,
		MaxBatch: 5, LogLevel: "error", LogFormat: "json",
		Precapture: []int{1, 2, 3, 64}, GraphMemory: 1 << 20, MaxGraphs: 7, Roller: "off", CacheScope: "all",
		Reread: "chat", HostCache: 8 << 30, CacheDir: "/c", CacheDirBytes: 1 << 30, ChatTemplate: "/t",
		Draft: "lookup", DraftTokens: 3, DraftPlan: "always", TokenGap: 15 * time.Millisecond,
		MaxConnections: 1000, MaxQueue: 700, GPULink: "auto"}
	if got := <-f.options; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 || f.stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %s", code, f.stderr.String())
	}
}

// An invalid value is named with its flag or its variable.
func TestBadValues(t *testing.T) {
	bad := map[string]string{"device": "tpu", "gpu": "-1", "max-seq-len": "many", "max-batch": "1e9", "token-gap": "soon",
		"host-cache": "some", "cache-dir-bytes": "few",
		"draft-tokens": "8", "draft-plan": "never", "log-level": "loud", "log-format": "xml", "name": "two words"}
	for name, value := range bad {
		f := newFixture(t)
		f.start("--" + name + "=" + value)
		if code := f.wait(); code != failure.ExitConfig || !strings.Contains(f.stderr.String(), "--"+name) {
			t.Errorf("--%s: exit code %d, stderr %s", name, code, f.stderr.String())
		}
		f = newFixture(t)
		variable := (&config.Setting{Name: name}).Variable()
		f.program.env = func(asked string) string {
			if asked == variable {
				return value
			}
			return ""
		}
		f.start()
		if code := f.wait(); code != failure.ExitConfig || !strings.Contains(f.stderr.String(), variable) {
			t.Errorf("%s: exit code %d, stderr %s", variable, code, f.stderr.String())
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--nonsense"}, "see reel-generator --help"},
		{[]string{"--model"}, "see reel-generator --help"},
		{[]string{"plan", "--nonsense"}, "see reel-generator plan --help"},
		{[]string{"version", "word"}, `"word": see reel-generator version --help`},
		{[]string{"m.gguf"}, `"m.gguf": to name a model, give --model; see reel-generator --help`},
		{[]string{"plan", "m.gguf"}, "give --model; see reel-generator plan --help"},
	} {
		f := newFixture(t)
		code := f.program.run(c.args)
		if text := f.stderr.String(); code != failure.ExitUsage || strings.Count(text, "\n") != 1 ||
			!strings.Contains(text, c.says) {
			t.Errorf("%q: exit code %d, stderr %s", c.args, code, text)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"version"}} {
		f := newFixture(t)
		var stdout bytes.Buffer
		f.program.stdout = &stdout
		if code := f.program.run(args); code != 0 || !strings.HasPrefix(stdout.String(), "reel-generator ") {
			t.Errorf("%q: exit code %d, stdout %q", args, code, stdout.String())
		}
	}
}

// cuda never becomes host silently; auto logs its choice in one line.
func TestDevice(t *testing.T) {
	f := newFixture(t)
	f.start("--device", "cuda")
	if code := f.wait(); code != failure.ExitConfig || strings.Count(f.stderr.String(), "\n") != 1 ||
		!strings.Contains(f.stderr.String(), "--device host") {
		t.Errorf("exit code %d, stderr %s", code, f.stderr.String())
	}
	f = newFixture(t)
	f.start()
	if o := <-f.options; o.Device != "host" {
		t.Errorf("auto became %q", o.Device)
	}
	f.signals <- syscall.SIGTERM
	f.wait()
	if n := strings.Count(f.stderr.String(), "serves on the host"); n != 1 {
		t.Errorf("auto is explained %d times: %s", n, f.stderr.String())
	}
}

// Logs are JSON unless stderr is a terminal, with one line per request, without its text.
func TestLog(t *testing.T) {
	f := newFixture(t)
	f.start()
	conn, frames := f.connect()
	prompt := "secret"
	f.send(conn, &protocol.Generate{ID: 7, Prompt: &prompt})
	f.read(frames)
	f.read(frames)
	f.signals <- syscall.SIGTERM
	f.wait()
	if n := strings.Count(f.stderr.String(), `"msg":"graphs captured"`); n != 1 {
		t.Errorf("the cost of the graphs is logged %d times: %s", n, f.stderr.String())
	}
	requests := 0
	for line := range strings.Lines(f.stderr.String()) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if event["req_id"] == nil {
			continue
		}
		requests++
		if event["peer_uid"] != float64(os.Getuid()) || event["n_prompt"] != 6.0 || event["n_gen"] != 1.0 ||
			event["finish"] != "length" || event["ttft_ms"] == nil ||
			event["tpot_ms"] == nil || event["model"] != "fake" || event["level"] != "info" || event["msg"] != "request" ||
			event["ts"] == nil {
			t.Errorf("got %v", event)
		}
	}
	if requests != 1 || strings.Contains(f.stderr.String(), prompt) {
		t.Errorf("%d lines for one request: %s", requests, f.stderr.String())
	}
}
