//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

const weightsFile = "model.safetensors"

// checkpoint copies the embedded model to a directory.
func checkpoint(t *testing.T) (dir string, weights []byte) {
	t.Helper()
	dir = tempDir(t)
	must(t, os.CopyFS(dir, tiny.Files))
	weights, err := os.ReadFile(filepath.Join(dir, weightsFile))
	must(t, err)
	must(t, os.Chmod(filepath.Join(dir, weightsFile), 0o600))
	return dir, weights
}

// otherWeights returns weights with the sign of every third element after the header changed.
func otherWeights(weights []byte) []byte {
	other := slices.Clone(weights)
	for i := len(other) - 1; i > 64<<10; i -= 6 {
		other[i] ^= 0x80
	}
	return other
}

// writeInPlace overwrites a file as dd conv=notrunc or rsync --inplace does.
func writeInPlace(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(content)
	must(t, errors.Join(err, f.Close()))
}

// askUntilRefused sends one request after another until one ends with an error, and returns that error.
func (p *peer) askUntilRefused(g *generator) *protocol.Error {
	p.t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience / 4))
	for id := uint64(1); ; id++ {
		p.send(g.endless(id))
		for done := false; !done; {
			msg, err := p.read()
			if err != nil {
				p.t.Fatalf("request %d: no error message: %v", id, err)
			}
			switch m := msg.(type) {
			case *protocol.Done:
				done = true
			case *protocol.Error:
				if m.ID != nil {
					return m
				}
			}
		}
	}
}

// If weights are overwritten while they are served, requests and generator end with model_changed, and the next start
// serves the new weights. Weights replaced by a rename, or touched, end nothing.
func TestWeightsWrittenInPlace(t *testing.T) {
	if device != "host" {
		t.Skip("needs the host device, which reads weights from their mapped file")
	}
	t.Parallel()
	dir, weights := checkpoint(t)
	path, other := filepath.Join(dir, weightsFile), otherWeights(weights)
	g := serve(t, "--model", dir)
	prompt := greedy([]int32{1, 2, 3, 4, 5, 6, 7, 8}, 24)
	before := ask(g.client(), prompt)

	must(t, os.WriteFile(path+".new", other, 0o600))
	must(t, os.Link(path, path+".old"))
	must(t, os.Rename(path+".new", path))
	must(t, os.Chtimes(path+".old", time.Time{}, time.Now().Add(-time.Hour)))
	g.says("was touched") // the generator has checked its files since the rename
	if now := ask(g.client(), prompt); now.Err != "" || !slices.Equal(now.ids(), before.ids()) {
		t.Errorf("after a rename and a touch: %v, before: %v", now, before)
	}
	must(t, os.Rename(path+".old", path))

	writeInPlace(t, path, other)
	if e := g.peer().askUntilRefused(g); e.Code != protocol.CodeModelChanged || e.Hint == "" {
		t.Errorf("a client was told %+v", e)
	}
	g.wantExit(75)

	again := serveOn(t, g.socket, "--model", dir)
	if now := ask(again.client(), prompt); now.Err != "" || slices.Equal(now.ids(), before.ids()) {
		t.Errorf("after a restart: %v, before: %v", now, before)
	}
}

// If overwritten weights give NaN, the client is told model_changed and not an internal error.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	if device != "host" {
		t.Skip("needs the host device, which reads weights from their mapped file")
	}
	t.Parallel()
	dir, weights := checkpoint(t)
	g := serve(t, "--model", dir)
	for i := 64 << 10; i < len(weights); i++ {
		weights[i] = 0xff
	}
	writeInPlace(t, filepath.Join(dir, weightsFile), weights)
	if e := g.peer().askUntilRefused(g); e.Code != protocol.CodeModelChanged {
		t.Errorf("a client was told %+v", e)
	}
	for range 8 { // the generator waits until the files rest, so that the next start finds whole ones
		writeInPlace(t, filepath.Join(dir, weightsFile), weights[:1<<10])
		time.Sleep(200 * time.Millisecond)
	}
	select {
	case <-g.exited:
		t.Error("the generator ended while its files were written")
	default:
	}
	if s := g.status(); s.State != protocol.StateFailed || s.Failure.Code != protocol.CodeModelChanged {
		t.Errorf("meanwhile its status is %+v", s)
	}
	g.wantExit(75)
}

// A checkpoint with a NaN or an infinity ends the start with 78 and the tensor's name.
func TestStartWithWeightsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]string{"NaN": "\xc0\x7f", "infinity": "\x80\x7f"} {
		dir, weights := checkpoint(t)
		at := len(weights) / 2 &^ 1
		copy(weights[at:], strings.Repeat(number, 8))
		must(t, os.WriteFile(filepath.Join(dir, weightsFile), weights, 0o600))
		socket := filepath.Join(dir, "s")
		p := prepare(t, "reel-generator", "--socket", socket, "--device", device, "--model", dir).start()
		p.wantExit(78)
		if said := p.stderr.String(); !strings.Contains(said, weightsFile+`: tensor \"model.layers.`) ||
			!strings.Contains(said, dir) {
			t.Errorf("%s: the message does not name the tensor and the directory: %s", name, said)
		}
	}
}

// A file that is truncated while it is served ends the generator with model_changed too, although reading its missing
// pages faults. The next start refuses the file.
func TestWeightsCutShort(t *testing.T) {
	if device != "host" {
		t.Skip("needs the host device, which reads weights from their mapped file")
	}
	t.Parallel()
	dir, _ := checkpoint(t)
	g := serve(t, "--model", dir)
	must(t, os.Truncate(filepath.Join(dir, weightsFile), 8192))
	if e := g.peer().askUntilRefused(g); e.Code != protocol.CodeModelChanged {
		t.Errorf("a client was told %+v", e)
	}
	g.wantExit(75)
	again := prepare(t, "reel-generator", "--socket", g.socket, "--device", device, "--model", dir).start()
	again.wantExit(78)
	if said := again.stderr.String(); !strings.Contains(said, weightsFile) {
		t.Errorf("the message does not name the file: %s", said)
	}
}
