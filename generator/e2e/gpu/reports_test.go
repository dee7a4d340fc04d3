//go:build linux && cuda

package gpu

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// failure returns the failure in the record that the generator left beside its socket.
func (g *generator) failure() (f protocol.Failure) {
	g.t.Helper()
	text, err := os.ReadFile(protocol.RecordPath(g.socket))
	r := protocol.Record{Failure: &f}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		g.t.Errorf("the generator's record: %v", err)
	}
	return f
}

// command runs a program in bin to its end.
func command(program string, args ...string) (stdout string, err error) {
	out, err := exec.Command(filepath.Join("../../../bin", program), args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return string(out), err
}

// finding is one finding of the doctor.
type finding struct{ Check, Level, Found, Next string }

// examine runs the doctor on a generator's socket, and returns its findings.
func examine(t *testing.T, socket string) (list []finding) {
	t.Helper()
	out, err := command("reel-generator", "doctor", "--json", "--device", "cuda", "--socket", socket)
	var said struct{ Findings []finding }
	if e := json.Unmarshal([]byte(out), &said); e != nil {
		t.Fatalf("%v, %v: %s", e, err, out)
	}
	for _, f := range said.Findings {
		t.Logf("%-8s %-8s %s", f.Level, f.Check, f.Found)
	}
	return said.Findings
}

// The doctor finds nothing wrong with a GPU that a generator serves on, and reports the use of its memory. Without a
// generator it reports the free memory.
func TestGPUDoctor(t *testing.T) {
	g := start(t, "reel-generator", "--log-level", "warn")
	if _, err := stream(g.dial(), 9, 20, func(time.Time) {}); err != nil {
		t.Fatal(err)
	}
	wantsAllWell(t, examine(t, g.socket), "as planned: ")
	g.stop()
	wantsAllWell(t, examine(t, g.socket), "are free")
}

// wantsAllWell checks that the findings about a GPU are all ok. memory must be part of the finding about its memory.
func wantsAllWell(t *testing.T, list []finding, memory string) {
	t.Helper()
	seen := map[string]int{}
	for _, f := range list {
		seen[f.Check]++
		if strings.Contains(" gpu driver library node program model vram ", " "+f.Check+" ") && f.Level != "ok" {
			t.Errorf("%+v", f)
		}
		if f.Check == "vram" && !strings.Contains(f.Found, memory) {
			t.Errorf("%+v, wants %q", f, memory)
		}
	}
	findings := map[string]int{"gpu": 1, "driver": 1, "library": 1, "node": 3, "program": 1, "model": 1, "vram": 1}
	for check, n := range findings {
		if seen[check] != n {
			t.Errorf("%d findings of %s, wants %d", seen[check], check, n)
		}
	}
}

// vram prints the planned and the used memory of each kind. With --watch it prints a line each interval, and no value
// grows while requests run.
func TestGPUVRAM(t *testing.T) {
	g := start(t, "reel-generator", "--log-level", "warn")
	c := g.dial()
	if _, err := stream(c, 9, 200, func(time.Time) {}); err != nil {
		t.Fatal(err)
	}
	table, err := command("reel-generator", "vram", "--socket", g.socket)
	t.Logf("%v\n%s", err, table)
	for _, row := range []string{"weights", "kv", "arena", "graphs", "other", "all", "device"} {
		if !regexp.MustCompile(`(?m)^` + row + ` +[0-9.]+ [KMG]iB +[0-9.]+ [KMG]iB$`).MatchString(table) {
			t.Errorf("the row %s is missing", row)
		}
	}
	var lines lockedBuffer
	watch := exec.Command("../../../bin/reel-generator", "vram", "--watch", "--interval", "200ms", "--socket", g.socket)
	watch.Stdout, watch.Stderr = &lines, &lines
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := stream(c, 9, 900, func(time.Time) {}); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	err = errors.Join(watch.Process.Signal(syscall.SIGINT), watch.Wait())
	t.Logf("%v\n%s", err, lines.String())
	rows := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d .*$`).FindAllString(lines.String(), -1)
	if err != nil || len(rows) < 3 || strings.Contains(strings.Join(rows, ""), "!") {
		t.Errorf("%v, %d lines", err, len(rows))
	}
	g.stop()
}

// An absent GPU ends the generator with a permanent failure of its own.
func TestGPUAbsent(t *testing.T) {
	g := start(t, "reel-generator", "--gpu", "99", "--log-level", "warn")
	if code := g.end(); code != 78 {
		t.Errorf("exit code %d\n%s", code, g.stderr.String())
	}
	if f := g.failure(); f.Code != protocol.CodeGPUAbsent || !strings.Contains(f.Message, "99") {
		t.Errorf("the record says %+v", f)
	}
}
