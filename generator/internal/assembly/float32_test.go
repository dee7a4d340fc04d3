package assembly

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
)

// hasExperts reports whether the checkpoint in dir has experts.
func hasExperts(t *testing.T, dir string) bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Experts != nil
}

// inFloat32 copies the checkpoint in dir, with float32 in place of bfloat16, and returns where the copy is.
func inFloat32(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, widened(t, raw), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// widened returns a file of safetensors with float32 instead of bfloat16.
func widened(t *testing.T, raw []byte) []byte {
	t.Helper()
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	size := int(binary.LittleEndian.Uint64(raw))
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	var body []byte
	for name, text := range header {
		var e entry
		if name == "__metadata__" {
			continue
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		data := raw[8+size:][e.Offsets[0]:e.Offsets[1]]
		e.Offsets[0] = len(body)
		if e.DType == "BF16" {
			e.DType = "F32"
			for ; len(data) > 0; data = data[2:] {
				body = append(body, 0, 0, data[0], data[1])
			}
		}
		body = append(body, data...)
		e.Offsets[1] = len(body)
		header[name], _ = json.Marshal(e)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, strings.Repeat(" ", -len(text)&7)...)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), append(text, body...)...)
}
