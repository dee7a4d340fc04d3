package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
)

// tree makes a directory with files, given by name and content, and returns its path.
func tree(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	dir = filepath.Join(t.TempDir(), dir)
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A path that is no model's directory is refused with what it is and the next command.
func TestPathsThatAreNoModel(t *testing.T) {
	noStores(t)
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n"
	cache := map[string]string{"refs/main": "abc", "snapshots/abc/config.json": "{}"}
	for name, c := range map[string]struct {
		path string
		says []string
	}{
		"no GGUF file": {filepath.Join(tree(t, "x", map[string]string{"m.gguf": "GGML\x03"}), "m.gguf"),
			[]string{"is not a directory", "give a GGUF file"}},
		"GGUF directory": {tree(t, "x", map[string]string{"m-Q4.gguf": "GGUF\x03"}),
			[]string{"GGUF files", "--model /", "x/m-Q4.gguf"}},
		"repository": {"org/Some-Model_1.5",
			[]string{"no such path", "no such repository", "hf download org/Some-Model_1.5,"}},
		"Ollama": {"ollama:llama3.2:1b", []string{"ollama pull llama3.2:1b,"}},
		"cache": {tree(t, "models--org--name", cache),
			[]string{"cache", "--model /", "models--org--name/snapshots/abc"}},
		"cache, cut": {tree(t, "models--org--name", map[string]string{"refs/main": "abc", "snapshots/x": ""}),
			[]string{"no complete snapshot", "hf download org/name, then give --model org/name"}},
		"LFS weights": {tree(t, "x", map[string]string{"config.json": "{}", "model.safetensors": pointer}),
			[]string{`"model.safetensors" is a pointer`, "git lfs pull"}},
		"LFS tokenizer": {tree(t, "x", map[string]string{"config.json": "{}", "tokenizer.json": pointer}),
			[]string{`"tokenizer.json" is a pointer`, "git lfs pull"}},
		"no config": {tree(t, "x", map[string]string{"model.safetensors": ""}),
			[]string{"no config.json", "hf download"}},
		"empty":         {t.TempDir(), []string{"no config.json", "hf download"}},
		"adapter":       {tree(t, "x", map[string]string{"adapter_config.json": "{}"}), []string{"adapter", "merge"}},
		"authors' form": {tree(t, "x", map[string]string{"params.json": "{}"}), []string{"form of transformers"}},
		"weights alone": {filepath.Join(tree(t, "x", map[string]string{"m.safetensors": ""}), "m.safetensors"),
			[]string{"one file of a model", "give --model /"}},
		"another file":    {"directory_test.go", []string{"is not a directory"}},
		"missing":         {"/nowhere/at/all", []string{"no such file", "or a directory"}},
		"a word":          {"llama3.2", []string{"no such file", "ollama:NAME"}},
		"missing, beside": {"./org/name", []string{"no such file", "or a directory"}},
	} {
		_, _, err := ModelFiles(config.Options{Model: c.path})
		if failure.ExitCode(err) != failure.ExitConfig || !errors.Is(err, config.ErrConfig) {
			t.Errorf("%s: %v, wants exit code %d", name, err, failure.ExitConfig)
			continue
		}
		for _, part := range append(c.says, c.path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, wants %q", name, err, part)
			}
		}
	}
}

// A named pipe in place of the cache's refs/main does not hold up the start.
func TestRefThatIsAPipe(t *testing.T) {
	dir := tree(t, "models--org--name", map[string]string{"snapshots/x": ""})
	refs := filepath.Join(dir, "refs")
	if err := errors.Join(os.Mkdir(refs, 0o700), syscall.Mkfifo(filepath.Join(refs, "main"), 0o600)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, _, err := ModelFiles(config.Options{Model: dir})
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "no complete snapshot") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the pipe")
	}
}

// A snapshot in the Hugging Face cache has its repository's name, any other directory its own,
// and --name wins.
func TestModelNames(t *testing.T) {
	const snapshot = "snapshots/0123abcd"
	for _, c := range []struct{ dir, given, want string }{
		{"models--org--Some-Model_1.5/" + snapshot, "", "org/Some-Model_1.5"},
		{"models--gpt2/" + snapshot, "", "gpt2"},
		{"models--org--name/" + snapshot, "mine", "mine"},
		{"models--/" + snapshot, "", "0123abcd"},
		{"models--org--name/other", "", "other"},
		{"org/" + snapshot, "", "0123abcd"},
		{"plain", "", "plain"},
		{"plain", "org/other:q8", "org/other:q8"},
	} {
		path := filepath.Join(tree(t, "x", map[string]string{c.dir + "/config.json": "{}"}), c.dir)
		if _, got, err := ModelFiles(config.Options{Model: path, Name: c.given}); err != nil || got != c.want {
			t.Errorf("%s with --name %q: %q, %v, want %q", c.dir, c.given, got, err, c.want)
		}
	}
	if _, got, err := ModelFiles(config.Options{Name: "mine"}); err != nil || got != "mine" {
		t.Errorf("the embedded model: %q, %v", got, err)
	}
}
