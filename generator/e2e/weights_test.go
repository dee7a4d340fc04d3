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

	"reel/generator/tiny"
	"reel/protocol"
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

// otherWeights has the sign of every third element behind the header changed.
func otherWeights(weights []byte) []byte {
	other := slices.Clone(weights)
	for i := len(other) - 1; i > 64<<10; i -= 6 {
		other[i] ^= 0x80
	}
	return other
}

// writeInPlace writes over a file as dd conv=notrunc or rsync --inplace does.
func writeInPlace(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(content)
	must(t, errors.Join(err, f.Close()))
}

// askUntilRefused sends one request after another until one ends with an error,
// which it returns. Without one the test fails.
func (p *peer) askUntilRefused(g *generator) *protocol.Error {
	p.t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience / 4))
	for id := uint64(1); ; id++ {
		p.send(g.endless(id))
		for done := false; !done; {
			msg, err := p.read()
			if err != nil {
				p.t.Fatalf("request %d: no error came: %v", id, err)
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

// Weights that are written over while they are served end the requests and the
// generator with model_changed; the next start serves the new ones. Those that are
// replaced by a rename, or touched, end nothing.
func TestWeightsWrittenInPlace(t *testing.T) {
	if device != "host" {
		t.Skip("wants the host device, which reads weights where their file is mapped")
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
	g.says("was touched") // so it has looked since the rename
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

// Weights that are no numbers any more are found before a client is told of a fault
// of the generator's own.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	if device != "host" {
		t.Skip("wants the host device, which reads weights where their file is mapped")
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
	for range 8 { // the generator waits for a writer who goes on, so that the next start finds a whole file
		writeInPlace(t, filepath.Join(dir, weightsFile), weights[:1<<10])
		time.Sleep(200 * time.Millisecond)
	}
	select {
	case <-g.exited:
		t.Error("it ended while its files were written")
	default:
	}
	if s := g.status(); s.State != protocol.StateFailed || s.Failure.Code != protocol.CodeModelChanged {
		t.Errorf("meanwhile its status is %+v", s)
	}
	g.wantExit(75)
}

// A file that is cut short while it is served ends the generator with model_changed
// too, though a page that is gone faults. One that cannot be loaded keeps it down.
func TestWeightsCutShort(t *testing.T) {
	if device != "host" {
		t.Skip("wants the host device, which reads weights where their file is mapped")
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
		t.Errorf("it does not name the file: %s", said)
	}
}
