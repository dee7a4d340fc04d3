//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/internal/doctor"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/protocol"
)

// The doctor runs on any machine, and prints its findings as JSON too.
func TestDoctor(t *testing.T) {
	var out bytes.Buffer
	f := newFixture(t)
	f.program.stdout = &out
	code := f.program.run([]string{"doctor", "--json", "--socket", f.socket, "--device", "host"})
	var got struct {
		Failed   bool
		Findings []doctor.Finding
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if got.Failed != (code == failure.ExitFailure) {
		t.Errorf("exit code %d, failed %t", code, got.Failed)
	}
	seen := map[string]doctor.Finding{}
	for _, f := range got.Findings {
		seen[f.Check] = f
		if f.Level != doctor.OK && f.Next == "" {
			t.Errorf("%+v says nothing of what to do", f)
		}
	}
	if code != failure.ExitFailure {
		t.Errorf("exit code %d, although nothing serves", code)
	}
	_, gpu := seen["gpu"] // a row that does not apply
	if gpu || seen["socket"].Level != doctor.Failure || !strings.Contains(seen["socket"].Next, "start one: ") ||
		!strings.Contains(seen["memory"].Found, "the bound is ") {
		t.Errorf("%+v", got.Findings)
	}
	odd := smallHeads(t)
	for device, fails := range map[string]bool{"host": false, "cuda": true} { // a GPU has no kernels for it
		out.Reset()
		f.program.run([]string{"doctor", "--socket", f.socket, "--device", device, "--model", odd})
		if strings.Contains(out.String(), "failure  model") != fails {
			t.Errorf("heads of 8 elements with --device %s: %s", device, out.String())
		}
	}
	out.Reset()
	code = f.program.run([]string{"doctor", "--socket", f.socket, "--model", t.TempDir()})
	if code != failure.ExitFailure || !strings.Contains(out.String(), "failure  model") {
		t.Errorf("an empty model: exit code %d: %s", code, out.String())
	}
}

// smallHeads writes a model with heads of 8 elements, and zeros for weights.
func smallHeads(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	config := `{"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":32,"hidden_size":16,
		"intermediate_size":16,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":2,"hidden_act":"silu",
		"max_position_embeddings":64,"rms_norm_eps":1e-5,"tie_word_embeddings":true}`
	c, err := model.ParseConfig([]byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	header, end := map[string]any{}, int64(0)
	for _, s := range c.Tensors() {
		header[s.Name] = map[string]any{"dtype": "F32", "shape": s.Shape, "data_offsets": []int64{end, end + 4*s.Elements()}}
		end += 4 * s.Elements()
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw, make([]byte, end))
	for name, data := range map[string][]byte{"config.json": []byte(config), "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSocketsAreExplained(t *testing.T) {
	for _, c := range []struct {
		err   error
		level doctor.Level
		next  string
	}{
		{protocol.Errorf("draining", "wait", "it stops"), doctor.Failure, "wait"},
		{fmt.Errorf("%w: x", client.ErrDenied), doctor.Failure, "usermod"},
		{fmt.Errorf("%w: %w", client.ErrNoGenerator, client.ErrNoAnswer), doctor.Failure, "ss -xlp"},
		{context.DeadlineExceeded, doctor.Failure, "ss -xlp"},
		{client.ErrConfig, doctor.Failure, "--socket"},
		{client.ErrNoGenerator, doctor.Failure, ""},
	} {
		if level, found, next := explainSocket(c.err); level != c.level || found == "" ||
			!strings.Contains(next, c.next) || strings.Contains(found, "deadline") {
			t.Errorf("%v: %s, %s, %s", c.err, level, found, next)
		}
	}
}

// The user behind the socket is named, unless it is this user or root.
func TestForeignListenersAreFound(t *testing.T) {
	for _, uid := range []int{0, os.Getuid()} {
		if found := listenerFound(client.Peer{Socket: "/x.sock", UID: uid}); found != nil {
			t.Errorf("uid %d: %+v", uid, found)
		}
	}
	found := listenerFound(client.Peer{Socket: "/x.sock", UID: 54321})
	if len(found) != 1 || found[0].Level != doctor.Warning || !strings.Contains(found[0].Found, "uid 54321") ||
		found[0].Next == "" {
		t.Errorf("%+v", found)
	}
}

// vram shows planned memory beside used memory, and with --watch goes on until a signal.
func TestVRAM(t *testing.T) {
	f := newFixture(t)
	f.memory = []protocol.MemoryUse{{Kind: protocol.MemoryWeights, Planned: 3 << 30},
		{Kind: protocol.MemoryKV, Planned: 1 << 30}}
	f.start()
	f.connect()
	var out bytes.Buffer
	p := program{env: func(string) string { return "" }, stdout: &out, stderr: logging.NewQueue(&out)}
	if code := p.run([]string{"vram", "--socket", f.socket}); code != 0 ||
		!strings.Contains(out.String(), "weights         3.000 GiB") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	none := filepath.Join(t.TempDir(), "none.sock")
	if code := p.run([]string{"vram", "--socket", none}); code != failure.ExitFailure {
		t.Errorf("no generator: exit code %d", code)
	}
	f.signals <- syscall.SIGTERM
	f.wait()
}

// Lines go on until the generator is gone, and mark memory above its plan.
func TestVRAMIsWatched(t *testing.T) {
	first := &protocol.Status{Machine: protocol.Machine{MemoryUsed: 10 << 20},
		Memory: []protocol.MemoryUse{{Kind: protocol.MemoryKV, Planned: 4 << 20, Used: 4 << 20}}}
	grown := &protocol.Status{Machine: protocol.Machine{MemoryUsed: 13 << 20},
		Memory: []protocol.MemoryUse{{Kind: protocol.MemoryKV, Planned: 4 << 20, Used: 7 << 20}}}
	var out bytes.Buffer
	p := program{stdout: &out}
	gone, asked := errors.New("gone"), 0
	err := p.watchMemory(first, func() (*protocol.Status, error) {
		if asked++; asked > 1 {
			return nil, gone
		}
		return grown, nil
	}, time.Millisecond)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if !errors.Is(err, gone) || len(lines) != 3 || !strings.Contains(lines[1], "10.0       +0.0        4.0") ||
		!strings.Contains(lines[2], "13.0       +3.0       !7.0") {
		t.Errorf("%v: %s", err, out.String())
	}
}
