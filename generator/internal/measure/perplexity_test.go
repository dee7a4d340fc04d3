package measure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

const verse = "KING HENRY:\nOnce more unto the breach, dear friends, once more;\nOr close the wall up with our dead.\n"

// naive returns the sum of -ln p of the tokens of a text, each computed by a pass of its own from the begin of its
// window. Windows are found by the definition: a token's window is the first that holds it.
func naive(t *testing.T, s *scorer, w Windows, begin, ids []int32) (nats float64) {
	t.Helper()
	for i := max(0, 1-len(begin)); i < len(ids); i++ {
		from := 0
		for len(begin)+i-from >= w.Size {
			from += w.Stride
		}
		step := kernels.Step{}
		for at, token := range append(append([]int32{}, begin...), ids[from:i]...) {
			step.Rows = append(step.Rows, kernels.Row{Position: int32(at), Token: token})
		}
		step.Samples = []int32{int32(len(step.Rows) - 1)}
		if err := s.pass(step); err != nil {
			t.Fatal(err)
		}
		nats += surprise(s.logits[:4*s.vocab], int(ids[i]))
	}
	return nats
}

// Each token is scored once, after the tokens of its window, whatever the windows and the passes.
func TestPerplexity(t *testing.T) {
	l := loaded(t)
	ids, err := l.Encode(verse, false)
	if err != nil || len(ids) < 25 {
		t.Fatal(len(ids), err)
	}
	begins, windows := [][]int32{{0}, {}, {0, 7}}, []Windows{{16, 4}, {16, 13}, {len(ids) + 9, 1}, {len(ids), 3}}
	if testing.Short() { // for the race detector, which is slow
		begins, windows = begins[:1], windows[:1]
	}
	for _, begin := range begins {
		for _, w := range windows {
			s, err := newScorer(l, 64)
			if err != nil {
				t.Fatal(err)
			}
			want := naive(t, s, w, begin, ids)
			for _, chunk := range []int{s.chunk, 7, 1} {
				s.chunk = chunk
				nats, n, err := s.text(w, begin, ids)
				if err != nil || n != len(ids)+min(0, len(begin)-1) || math.Abs(nats-want) > 1e-9*want {
					t.Errorf("%+v after %v in passes of %d: %v of %d tokens, %v, wants %v", w, begin, chunk, nats, n,
						err, want)
				}
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}
	}
	live := l.Hardware.Device.(*device.Host).Live()
	if s, err := newScorer(l, 64); err != nil || s.close() != nil || l.Hardware.Device.(*device.Host).Live() != live {
		t.Errorf("%+v, before %+v: %v", l.Hardware.Device.(*device.Host).Live(), live, err)
	}
}

// The report's figures belong together. A model that knows the text scores below one that does not.
func TestRunPerplexity(t *testing.T) {
	o := config.Options{Device: "host", MaxSeqLen: 128}
	p, err := RunPerplexity(o, Windows{}, []string{verse, verse, ""}, "v")
	if err != nil {
		t.Fatal(err)
	}
	chars := 2 * len(verse)
	if p.Model != assembly.EmbeddedName || p.Window != 128 || p.Stride != 32 || p.Characters != chars ||
		math.Abs(p.PerToken-math.Log(p.Perplexity)) > 1e-12 || math.Abs(p.PerChar*float64(chars)-p.Nats) > 1e-9 ||
		!(p.PerToken > 1 && p.PerToken < 6) || p.Bytes == 0 { // ln 4096 is 8.3
		t.Errorf("%+v", p)
	}
	reversed, err := RunPerplexity(o, Windows{}, []string{backwards(verse)}, "")
	if err != nil || !(reversed.PerChar > p.PerChar+1) {
		t.Errorf("backwards %+v, %v", reversed, err)
	}
	var text, asJSON bytes.Buffer
	var decoded Perplexity
	err = errors.Join(p.Write(&text, false), p.Write(&asJSON, true), json.Unmarshal(asJSON.Bytes(), &decoded))
	if err != nil || decoded != *p || !strings.Contains(text.String(), fmt.Sprintf("perplexity %.4f", p.Perplexity)) {
		t.Errorf("%v: %s%s", err, text.String(), asJSON.String())
	}
	for _, w := range []Windows{{129, 1}, {1, 1}, {64, 64}, {64, -1}, {-1, 1}} {
		if _, err := RunPerplexity(o, w, []string{verse}, ""); !errors.Is(err, config.ErrConfig) ||
			!strings.Contains(err.Error(), "--window") {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if _, err := RunPerplexity(o, Windows{}, []string{""}, ""); !errors.Is(err, config.ErrConfig) {
		t.Errorf("no text: %v", err)
	}
}

func backwards(s string) string {
	b := []byte(s)
	for i := range len(b) / 2 {
		b[i], b[len(b)-1-i] = b[len(b)-1-i], b[i]
	}
	return string(b)
}

// Logits that are no numbers are an error, and not a perplexity.
func TestPerplexityOfNaN(t *testing.T) {
	dir := t.TempDir()
	err := os.CopyFS(dir, tiny.Files)
	name := filepath.Join(dir, "model.safetensors")
	raw, err2 := os.ReadFile(name)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	copy(raw[len(raw)-8:], "\xff\x7f\xff\x7f\xff\x7f\xff\x7f")
	if err := errors.Join(os.Chmod(name, 0o600), os.WriteFile(name, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := RunPerplexity(config.Options{Device: "host", Model: dir, MaxSeqLen: 64}, Windows{}, []string{verse}, "")
	if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "no numbers") {
		t.Errorf("%+v, %v", p, err)
	}
}
