package client

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/protocol"
)

func TestRecord(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "g.sock")
	failure := &protocol.Failure{Code: protocol.CodeGPUBusy, Message: "held"}
	for name, c := range map[string]struct {
		record any
		want   string
	}{
		"failed":            {protocol.Record{State: protocol.StateFailed, PID: 1, Failure: failure}, protocol.StateFailed},
		"failed, no code":   {protocol.Record{State: protocol.StateFailed}, ""},
		"draining":          {protocol.Record{State: protocol.StateDraining, PID: os.Getpid()}, protocol.StateDraining},
		"drained, gone":     {protocol.Record{State: protocol.StateDraining, PID: 1 << 30}, ""},
		"asleep, no socket": {protocol.Record{State: protocol.StateSleeping, PID: 1 << 30}, ""},
		"unknown state":     {protocol.Record{State: "resting"}, ""},
		"no record":         {"text", ""},
	} {
		text, err := json.Marshal(c.record)
		if err == nil {
			err = os.WriteFile(protocol.RecordPath(socket), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := Record(Options{Socket: socket})
		if (got == nil) != (c.want == "") || got != nil && got.State != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got := Record(Options{Socket: filepath.Join(t.TempDir(), "g.sock")}); got != nil {
		t.Errorf("without a generator: got %+v", got)
	}
}

// ReadStatus, and Dial with NoWake, do not connect to a generator that sleeps; Dial does, which wakes it.
func TestSleepingIsNotWoken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := `{"state":"sleeping","pid":1,"at":"2026-01-02T03:04:05Z"}`
	if err := os.WriteFile(protocol.RecordPath(path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Socket: path, Wait: time.Minute}
	if _, err := ReadStatus(t.Context(), o); !errors.Is(err, ErrSleeping) {
		t.Errorf("status: %v", err)
	}
	quiet := Options{Socket: path, Wait: time.Minute, NoWake: true}
	if _, err := Dial(t.Context(), quiet); !errors.Is(err, ErrSleeping) {
		t.Errorf("dial: %v", err)
	}
	if r := Record(o); r == nil || r.State != protocol.StateSleeping {
		t.Errorf("got %+v", r)
	}
	_ = l.SetDeadline(time.Now())
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a reason to wake it somebody connects: %v", err)
	}
	_ = l.SetDeadline(time.Time{})
	go func() { _, _ = Dial(t.Context(), o) }()
	if _, err := l.Accept(); err != nil {
		t.Error(err)
	}
}

// TestRecordIsASmallFile: other kinds of files and large files are ignored, without blocking.
func TestRecordIsASmallFile(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "g.sock")
	path := protocol.RecordPath(socket)
	text := `{"state":"failed","failure":{"code":"x","message":"y"}}`
	for name, make := range map[string]func() error{
		"a pipe": func() error { return unix.Mkfifo(path, 0o600) },
		"a large file": func() error {
			return os.WriteFile(path, []byte(text+strings.Repeat(" ", maxRecord)), 0o600)
		},
		"a directory": func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if got := Record(Options{Socket: socket}); got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
