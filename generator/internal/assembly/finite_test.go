package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/weights"
)

// The tensor with a NaN is named, also if the device has copied the weights and the files are
// closed. Finite weights and weights that cannot be read give no error.
func TestTensorThatIsNotFinite(t *testing.T) {
	sound, spoilt := modelDir(t), modelDir(t)
	path := filepath.Join(spoilt, "model.safetensors")
	raw, err := os.ReadFile(path)
	if err == nil {
		copy(raw[len(raw)-2:], "\xc0\x7f") // NaN as bfloat16
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir    string
		packed bool
		want   string
	}{
		{sound, false, ""}, {sound, true, ""}, {"/nowhere", true, ""},
		{spoilt, false, `model.safetensors: tensor "model.`}, {spoilt, true, `model.safetensors: tensor "model.`},
	} {
		l := Prepared{}
		if l.Hardware.Packed = c.packed; !c.packed {
			if l.weights, err = weights.Open(os.DirFS(c.dir)); err != nil {
				t.Fatal(err)
			}
		}
		err := l.notFinite(t.Context(), config.Options{Model: c.dir})
		if c.want == "" && err != nil || c.want != "" && (failure.ExitCode(err) != failure.ExitConfig ||
			!errors.Is(err, weights.ErrNotFinite) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), c.dir)) {
			t.Errorf("%s, packed %t: %v, want %q", c.dir, c.packed, err, c.want)
		}
	}
}
