package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// lacking is a checkpoint without the tensors of some names.
type lacking struct {
	model.Tensors
	names *regexp.Regexp
}

func (l lacking) Names() []string {
	return slices.DeleteFunc(l.Tensors.Names(), l.names.MatchString)
}

func (l lacking) Tensor(name string) (weights.Tensor, error) {
	if l.names.MatchString(name) {
		return weights.Tensor{}, weights.ErrMissing
	}
	return l.Tensors.Tensor(name)
}

// A tensor that a field of config.json says not to be there is refused with the field and its value, and a checkpoint
// without it is served.
func TestTensorsThatTheConfigIsWithout(t *testing.T) {
	for _, test := range []struct{ name, old, with, names, says string }{
		{"gpt-oss", `"attention_bias": true`, `"attention_bias": false`, `self_attn\..*_proj\.bias`, "attention_bias is false"},
		{"deepseek-v2", `"n_shared_experts": 1`, `"n_shared_experts": 0`, "shared_experts", "n_shared_experts is 0"},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", test.name, "config.json"))
		text := strings.Replace(string(raw), test.old, test.with, 1)
		if err != nil || text == string(raw) {
			t.Fatalf("%s: %v, or no %s", test.name, err, test.old)
		}
		c, err := model.ParseConfig([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, w := checkpoint(t, test.name)
		if err := c.CheckTensors(w); !errors.Is(err, model.ErrTensor) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, wants %q", test.name, err, test.says)
		}
		run(t, c, lacking{w, regexp.MustCompile(test.names)}, []int32{1, 2, 3})
	}
}
