//go:build linux

package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"reel.internal/reel/protocol"
)

// largePages makes a checkpoint of random weights with few of them, and pages of 1 MiB, and returns its directory.
func largePages(t *testing.T) string {
	t.Helper()
	dir, at := zeros(t, 64, 64, 16, 8, 8, 64, 256)
	file := filepath.Join(dir, "model.safetensors")
	weights, err := os.ReadFile(file)
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for i := at; i < len(weights); i += 2 { // bfloat16
		binary.LittleEndian.PutUint16(weights[i:], uint16(math.Float32bits(float32(r.NormFloat64()/4))>>16))
	}
	must(t, os.WriteFile(file, weights, 0o644))
	return dir
}

// ask asks for 240 tokens after a prompt of 32, another for each id, and returns them.
func (p *peer) ask(id uint64) (tokens []int32, err error) {
	prompt := make([]int32, 32)
	for i := range prompt {
		prompt[i] = int32((i*i + 7*int(id)*i) % 256)
	}
	p.send(&protocol.Generate{ID: id, Tokens: prompt, MaxTokens: new(240), Seed: &id, IgnoreEOS: true})
	for {
		msg, err := p.read()
		if err != nil {
			return nil, err
		}
		switch m := msg.(type) {
		case *protocol.Token:
			tokens = append(tokens, m.Token)
		case *protocol.Done:
			return tokens, nil
		default:
			return nil, fmt.Errorf("got %+v", m)
		}
	}
}

// Eight requests that do not fit the KV pool together get the answers that each gets alone without a cache:
// some of them move to host memory and come back. A limit of data leaves the pool of the host less than eight
// sequences take, which is 136 pages.
func TestRequestsMoveOutOfASmallPool(t *testing.T) {
	t.Parallel()
	if raceEnabled || device != "host" {
		t.Skip("needs the host device, and a build without the race detector, which takes memory of its own")
	}
	model := []string{"--model", largePages(t), "--max-seq-len", "352", "--device", "host", "--log-level", "warn",
		"--max-graphs", "0"}
	socket := filepath.Join(tempDir(t), "generator.sock")
	args := append([]string{"--socket", socket, "--max-batch", "8", "--host-cache", "160MiB"}, model...)
	small := &generator{process: prepare(t, "reel-generator", args...).within("ulimit -d 415744"), socket: socket}
	small.start()
	small.awaited()
	small.eventually("the whole tier", func() bool { return small.status().KV.HostPages == 160 })

	got := make([][]int32, 8)
	var all sync.WaitGroup
	for id := range got {
		p := small.peer()
		all.Go(func() {
			var err error
			if got[id], err = p.ask(uint64(id)); err != nil {
				t.Errorf("request %d: %v", id, err)
			}
		})
	}
	all.Wait()
	kv := small.status().KV
	if t.Logf("%+v", kv); kv.MovedOut == 0 || kv.MovedIn != kv.MovedOut {
		t.Error("no request moved out and back")
	}
	alone := serve(t, append(model, "--cache-scope", "off", "--host-cache", "0")...).peer()
	for id := range got {
		want, err := alone.ask(uint64(id))
		if err != nil || !slices.Equal(got[id], want) || len(want) != 240 {
			t.Errorf("request %d: %v, alone %v, %v", id, got[id], want, err)
		}
	}
}
