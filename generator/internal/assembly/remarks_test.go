package assembly

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
)

// The log says which tensors are not used, why a context is short, and which factors RoPE has. Those are part of both
// identities, although the context is not.
func TestRemarks(t *testing.T) {
	digests := map[[32]byte]bool{}
	tokens := map[string]bool{}
	for _, c := range []struct {
		name    string
		context int
		line    string
	}{{"mistral-3", 64, "are for images"}, {"ministral-3", 64, "at most 512 tokens: beyond it llama_4_scaling_beta"},
		{"phi-4-mini", 128, "the long factors"}, {"phi-4-mini", 64, "the short factors"},
		{"phi-4-mini", 48, "the short factors"}, {"llama-2", 64, ""}} {
		l := prepared(t, config.Options{Model: "../model/testdata/" + c.name, MaxSeqLen: c.context, MaxBatch: 1})
		all := strings.Join(l.warnings, "\n")
		if !strings.Contains(all, c.line) || c.line == "" && strings.Contains(all, "RoPE") {
			t.Errorf("%s: %q", c.name, all)
		}
		got := strings.TrimPrefix(ShapeOf(l.Model).RoPE, "longrope, ")
		if strings.HasSuffix(c.line, "factors") && !strings.HasSuffix(c.line, got) {
			t.Errorf("%s: status says %q", c.name, got)
		}
		i := l.identity()
		digest, err := i.digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[digest], tokens[l.tokenIdentity().String()] = true, true
	}
	if len(digests) != 5 || len(tokens) != 5 {
		t.Errorf("%d identities of pages, %d of tokens, wants 5", len(digests), len(tokens))
	}
}

// A page with the keys of a draft model depends on the factors of longrope that it has.
func TestDraftsFactorsAreInItsIdentity(t *testing.T) {
	o := config.Options{Model: "../model/testdata/phi-3", Draft: "../model/testdata/phi-4-mini", DraftTokens: 3,
		MaxBatch: 1}
	for context, second := range map[int]float32{64: 1.02, 128: 1.5} {
		o.MaxSeqLen = context
		if c := prepared(t, o).identity().Draft.Config; len(c.RoPEDivisors) != 12 || c.RoPEDivisors[1] != second {
			t.Errorf("%d: %+v", context, c)
		}
	}
}

// A context beyond that of dynamic scaling or of Ministral 3 is refused with the reason.
func TestContextThatIsRefused(t *testing.T) {
	_, err := Prepare(config.Options{Model: "../model/testdata/ministral-3", MaxSeqLen: 1024}, func(float64, string) {})
	if err == nil || !strings.Contains(err.Error(), "llama_4_scaling_beta") {
		t.Error(err)
	}
}
