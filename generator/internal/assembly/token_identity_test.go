package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/format"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// otherKind is the host device with the name of another kind.
type otherKind struct{ device.Device }

func (otherKind) Name() string { return "cuda" }

// identityOf returns the identity of a model with its own template.
func identityOf(t *testing.T, l Prepared, o config.Options) string {
	t.Helper()
	sum, err := l.weightsSum(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	i := &identifier{parts: l.tokenIdentity()}
	i.setTemplate(l.chat)
	if i.String() != "" {
		t.Fatal("it is known before the weights are")
	}
	i.setWeights(sum)
	return i.String()
}

// A copy of a model, at another time and with other settings that change no token, has the same identity. A change of a
// byte of weights, tokenizer or template, of a special token, a default or the kind of device gives another one.
func TestIdentityOfTokens(t *testing.T) {
	write := func(file, text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600) }
	}
	seen := map[string]string{}
	for _, c := range []struct {
		name   string
		change func(dir string) error
		device hardware.Hardware
		length int
		same   bool
	}{
		{"the model", write(templateFile, "x"), hardware.Host(), 64, false},
		{"a copy", write(templateFile, "x"), hardware.Host(), 32, true},
		{"another template", write(templateFile, "y"), hardware.Host(), 64, false},
		{"no template", func(string) error { return nil }, hardware.Host(), 64, false},
		{"another special token", write(tokenizerConfig, `{"bos_token": "b", "chat_template": "x"}`), hardware.Host(), 64, false},
		{"another default", func(dir string) error {
			return errors.Join(write(templateFile, "x")(dir), write(generationConfig, `{"temperature": 0.5}`)(dir))
		}, hardware.Host(), 64, false},
		{"another byte of the tokenizer", func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
			return errors.Join(err, write(templateFile, "x")(dir), write("tokenizer.json", string(text)+"\n")(dir))
		}, hardware.Host(), 64, false},
		{"another weight", func(dir string) error {
			setWeight(t, filepath.Join(dir, "model.safetensors"), time.Unix(0, 0))
			return write(templateFile, "x")(dir)
		}, hardware.Host(), 64, false},
		{"another kind of device", write(templateFile, "x"), of(otherKind{}), 64, false},
	} {
		o := config.Options{Model: modelDir(t), MaxSeqLen: c.length, MaxBatch: c.length / 16}
		if err := c.change(o.Model); err != nil {
			t.Fatal(err)
		}
		l := prepared(t, o)
		l.Hardware.Device = c.device.Device
		id := identityOf(t, l, o)
		if other, is := seen[id]; len(id) != 64 || is != c.same {
			t.Errorf("%s has the identity of %q: %q", c.name, other, id)
		}
		seen[id] = c.name
	}
}

func of(d device.Device) hardware.Hardware { return hardware.Hardware{Device: d} }

// A served model has an identity a while after it serves. It follows the template in use, and is the same in the next
// life.
func TestIdentityOfAServedModel(t *testing.T) {
	path := writeTemplate(t, filepath.Join(t.TempDir(), "t"), "x")
	var before string
	for range 2 {
		l, err := Load(t.Context(), config.Options{MaxSeqLen: 64, MaxBatch: 1}, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		if id := l.Model.Identity(); id != "" {
			t.Errorf("%q before it serves", id)
		}
		ended := make(chan error)
		go func() { ended <- l.Run() }()
		l.Serving()
		for end := time.Now().Add(time.Minute); l.Model.Identity() == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it has no identity")
			}
		}
		own := l.Model.Identity()
		if before != "" && own != before {
			t.Errorf("%q in one life, %q in the next", before, own)
		}
		before = own
		use := func(server.Chat, *protocol.Sampling) error { return nil }
		if err := l.SetTemplate(path, use); err != nil || l.Model.Identity() == own {
			t.Errorf("%v; another template has the same identity", err)
		}
		if err := l.SetTemplate("", use); err != nil || l.Model.Identity() != own {
			t.Errorf("%v; without the template it has another identity", err)
		}
		l.Engine.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// What makes masks decides tokens.
func TestFormatsOfAnIdentity(t *testing.T) {
	i := prepared(t, config.Options{Model: modelDir(t), MaxSeqLen: 64}).tokenIdentity()
	other := i
	other.Formats += "x"
	if i.Formats != format.Version() || i.String() == other.String() {
		t.Errorf("%+v", i)
	}
}

// Special tokens and the template for tools are parts of the template.
func TestTemplatesOfAnIdentity(t *testing.T) {
	seen := map[string]bool{}
	all := []chat.Source{{}, {Template: "x"}, {Tools: "x"}, {Template: "x", Tokens: map[string]string{"a": "b"}}}
	for _, s := range all {
		i := &identifier{}
		i.setWeights([32]byte{1})
		i.setTemplate(s)
		seen[i.String()] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d identities of %d templates", len(seen), len(all))
	}
}
