package modelname

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/files"
)

// write makes files below a directory; a content that begins with -> is a link's target.
func write(t *testing.T, dir string, contents map[string]string) {
	t.Helper()
	for name, content := range contents {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, link := strings.CutPrefix(content, "->"); link {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hub returns the stores of a Hugging Face cache with these files in the repository org/name.
func hub(t *testing.T, contents map[string]string) Stores {
	t.Helper()
	s := Stores{HuggingFace: filepath.Join(t.TempDir(), "hub")}
	write(t, filepath.Join(s.HuggingFace, "models--org--name"), contents)
	return s
}

// snapshot returns the files of a repository with one snapshot, as a download leaves them: links to blobs.
func snapshot(names ...string) map[string]string {
	contents := map[string]string{"refs/main": "abc123\n"}
	for i, name := range names {
		blob := fmt.Sprintf("blobs/%040d", i)
		contents[blob] = "x"
		contents["snapshots/abc123/"+name] = "->" + strings.Repeat("../", 2+strings.Count(name, "/")) + blob
	}
	return contents
}

// with returns contents with one more, or without it if the content is empty.
func with(contents map[string]string, name, content string) map[string]string {
	if contents[name] = content; content == "" {
		delete(contents, name)
	}
	return contents
}

// many returns a directory with more entries than are read.
func many(contents map[string]string, format string) map[string]string {
	for i := range maxEntries + 1 {
		contents[fmt.Sprintf(format, i)] = ""
	}
	return contents
}

// folders returns a directory with n folders of n folders with a file each.
func folders(contents map[string]string, format string, n int) map[string]string {
	for i := range n * n {
		contents[fmt.Sprintf(format, i/n, i%n)] = ""
	}
	return contents
}

func TestRepositories(t *testing.T) {
	checkpoint := []string{"config.json", "tokenizer.json", "model.safetensors"}
	for name, c := range map[string]struct {
		contents map[string]string
		ask      string
		want     string // path in the snapshots
		called   string
	}{
		"checkpoint": {snapshot(checkpoint...), "org/name", "abc123", "org/name"},
		"shards": {snapshot("config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"),
			"org/name", "abc123", "org/name"},
		"no weights, for plan": {snapshot("config.json"), "org/name", "abc123", "org/name"},
		"one GGUF file":        {snapshot("m-Q4.gguf", "README.md"), "org/name", "abc123/m-Q4.gguf", "org/name"},
		"in a folder":          {snapshot("config.json", "Q4/m.gguf"), "org/name", "abc123/Q4/m.gguf", "org/name"},
		"parts, images, draft": {snapshot("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-f16.gguf",
			"mtp-m.gguf"), "org/name", "abc123/m-00001-of-00002.gguf", "org/name"},
		"checkpoint wins":  {snapshot(append(checkpoint, "m.gguf")...), "org/name", "abc123", "org/name"},
		"beside a GGUF":    {snapshot(append(checkpoint, "m.gguf")...), "org/name/m.gguf", "abc123/m.gguf", "m"},
		"one of several":   {snapshot("a.gguf", "b/b.gguf"), "org/name/b/b.gguf", "abc123/b/b.gguf", "b"},
		"the first part":   {snapshot("a.gguf", "b-00001-of-00002.gguf"), "org/name/b-00001-of-00002.gguf", "abc123/b-00001-of-00002.gguf", "b"},
		"refs/main":        {with(snapshot(checkpoint...), "snapshots/def/config.json", "{}"), "org/name", "abc123", "org/name"},
		"no refs/main":     {with(snapshot(checkpoint...), "refs/main", ""), "org/name", "abc123", "org/name"},
		"another download": {with(snapshot(checkpoint...), "blobs/9.incomplete", "x"), "org/name", "abc123", "org/name"},
		"copies for links": {map[string]string{"refs/main": "abc123", "snapshots/abc123/config.json": "{}",
			"snapshots/abc123/model.safetensors": "x"}, "org/name", "abc123", "org/name"},
	} {
		s := hub(t, c.contents)
		got, err := s.Find(c.ask)
		want := filepath.Join(s.HuggingFace, "models--org--name/snapshots", c.want)
		if err != nil || got.Path != want || got.Name != c.called {
			t.Errorf("%s: %+v, %v, wants %s %s", name, got, err, want, c.called)
		}
		if !Is(c.ask) {
			t.Errorf("%s is no name", c.ask)
		}
	}
}

func TestRefusedRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		contents map[string]string
		ask      string
		want     error
		says     []string
	}{
		"nothing":       {nil, "org/other", ErrMissing, []string{"hf download org/other,", "no such path"}},
		"file, nothing": {nil, "org/other/a.gguf", ErrMissing, []string{"hf download org/other a.gguf,"}},
		"file": {snapshot("b.gguf"), "org/name/a.gguf", ErrMissing,
			[]string{"hf download org/name a.gguf;", "holds b.gguf"}},
		"file of none": {snapshot("README.md"), "org/name/a.gguf", ErrMissing, []string{"holds no other"}},
		"several files": {snapshot("a.gguf", "b/b.gguf"), "org/name", ErrSeveral,
			[]string{"2 GGUF files", "--model org/name/a.gguf", "a.gguf, b/b.gguf"}},
		"several snapshots": {map[string]string{"snapshots/a1/config.json": "{}", "snapshots/b2/config.json": "{}"},
			"org/name", ErrSeveral, []string{"2 snapshots", "snapshots/a1; they are a1, b2"}},
		"no snapshot":      {map[string]string{"blobs/x": ""}, "org/name", ErrMissing, []string{"hf download org/name"}},
		"empty snapshots":  {map[string]string{"snapshots/.x": ""}, "org/name", ErrMissing, []string{"has no snapshot"}},
		"dangling ref":     {with(snapshot("config.json"), "refs/main", "def"), "org/name", ErrMissing, []string{"snapshot def"}},
		"nothing to serve": {snapshot("README.md"), "org/name", ErrMissing, []string{"neither config.json nor"}},
		"half downloaded": {with(snapshot("README.md"), "blobs/9.incomplete", "x"), "org/name", ErrMissing,
			[]string{"was cut or still runs: run hf download org/name"}},
		"lost weights": {with(snapshot("config.json", "model.safetensors"), "blobs/"+fmt.Sprintf("%040d", 1), ""),
			"org/name", ErrMissing, []string{"blob of model.safetensors", "hf download org/name"}},
		"lost shard": {with(snapshot("config.json", "model.safetensors.index.json", "a.safetensors"),
			"blobs/"+fmt.Sprintf("%040d", 2), ""), "org/name", ErrMissing, []string{"blob of a.safetensors"}},
		"lost GGUF": {with(snapshot("m.gguf"), "blobs/"+fmt.Sprintf("%040d", 0), ""), "org/name", ErrMissing,
			[]string{"blob of m.gguf"}},
		"lost GGUF, named": {with(snapshot("m.gguf"), "blobs/"+fmt.Sprintf("%040d", 0), ""), "org/name/m.gguf",
			ErrMissing, []string{"blob of m.gguf", "hf download org/name m.gguf"}},
		"ref leads out":    {with(snapshot("config.json"), "refs/main", "../../x"), "org/name", ErrDamaged, []string{"refs/main"}},
		"ref of a MB":      {with(snapshot("config.json"), "refs/main", strings.Repeat("a", 1<<20)), "org/name", ErrDamaged, []string{"refs/main"}},
		"ref, not regular": {with(snapshot("config.json"), "refs/main", "->/dev/zero"), "org/name", ErrDamaged, []string{"refs/main"}},
		"snapshots, a file": {map[string]string{"snapshots": "x"}, "org/name", ErrDamaged,
			[]string{"snapshots"}},
		"snapshots, a loop": {map[string]string{"snapshots": "->snapshots"}, "org/name", ErrDamaged, []string{"snapshots"}},
		"snapshot, a file":  {map[string]string{"refs/main": "abc", "snapshots/abc": "x"}, "org/name", ErrDamaged, []string{"abc"}},
		"config, a device": {map[string]string{"refs/main": "abc", "snapshots/abc/config.json": "->/dev/zero"},
			"org/name", ErrDamaged, []string{"config.json", "not a regular file"}},
		"config, a directory": {map[string]string{"refs/main": "abc", "snapshots/abc/config.json": "->.",
			"snapshots/abc/model.safetensors": "x"}, "org/name", ErrDamaged, []string{"is a directory"}},
		"many snapshots": {many(map[string]string{}, "snapshots/%d"), "org/name", ErrDamaged, []string{"4096 entries"}},
		"many files":     {many(snapshot("config.json"), "snapshots/abc123/%d"), "org/name", ErrDamaged, []string{"4096"}},
		"many folders": {folders(snapshot("config.json"), "snapshots/abc123/%d/%d/a/b", 37), "org/name", ErrDamaged,
			[]string{"4096 files and directories"}},
		"hostile names": {snapshot("a\x1b[2J.gguf", "b\n.gguf"), "org/name", ErrSeveral,
			[]string{`"a\x1b[2J.gguf"`, `"b\n.gguf"`}},
		"two dots":   {nil, "org/a..b", ErrMissing, []string{"no repository"}},
		"two dashes": {nil, "a--b/c", ErrMissing, []string{"no repository"}},
		"leads out":  {snapshot("a.gguf"), "org/name/../../a.gguf", ErrMissing, []string{"no repository"}},
	} {
		s := hub(t, c.contents)
		found, err := s.Find(c.ask)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, wants %v", name, found, err, c.want)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, wants %q", name, err, part)
			}
		}
		if strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 4000 {
			t.Errorf("%s: %d bytes, %q", name, len(err.Error()), err)
		}
	}
}

const (
	blobs = "blobs/sha256-"
	sum   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// layer returns a layer of a manifest.
func layer(kind, digest string, size int) string {
	return fmt.Sprintf(`{"mediaType": "application/vnd.ollama.image.%s", "digest": %q, "size": %d}`, kind, digest, size)
}

// ollama returns a store with a manifest of these layers, and a blob of 4 bytes.
func ollama(t *testing.T, manifest string, layers ...string) Stores {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{blobs + sum: "GGUF", "manifests/" + manifest: fmt.Sprintf(
		`{"schemaVersion": 2, "layers": [%s]}`, strings.Join(layers, ", "))})
	return Stores{Ollama: []string{filepath.Join(dir, "none"), dir}}
}

func TestOllama(t *testing.T) {
	model := layer("model", "sha256:"+sum, 4)
	for _, c := range []struct{ manifest, ask, called string }{
		{"registry.ollama.ai/library/llama3.2/latest", "ollama:llama3.2", "llama3.2:latest"},
		{"registry.ollama.ai/library/llama3.2/1b-Q4_K", "ollama:llama3.2:1b-Q4_K", "llama3.2:1b-Q4_K"},
		{"registry.ollama.ai/me/mine/v1", "ollama:me/mine:v1", "me/mine:v1"},
		{"hf.co/org/name-GGUF/Q8_0", "ollama:hf.co/org/name-GGUF:Q8_0", "hf.co/org/name-GGUF:Q8_0"},
	} {
		s := ollama(t, c.manifest, layer("license", "sha256:00", 1), model, layer("template", "no digest", 2))
		got, err := s.Find(c.ask)
		if want := filepath.Join(s.Ollama[1], blobs+sum); err != nil || got != (Found{want, c.called}) || !Is(c.ask) {
			t.Errorf("%s: %+v, %v, wants %s", c.ask, got, err, want)
		}
		if place, held := s.Place(c.ask); !held || place != filepath.Join(s.Ollama[1], "manifests", c.manifest) {
			t.Errorf("%s: %s, %t", c.ask, place, held)
		}
	}
}

// Of several layers the model's is the GGUF file; the others are of no use here.
func TestOllamaLayers(t *testing.T) {
	other := "sha256:" + strings.Repeat("f", 64) // there is no such blob
	s := ollama(t, "registry.ollama.ai/library/x/latest", layer("projector", other, 9), layer("template", other, 9),
		layer("model", "sha256:"+sum, 4), layer("params", other, 9), layer("license", other, 9), layer("system", other, 9),
		layer("draft", other, 9))
	if got, err := s.Find("ollama:x"); err != nil || got.Path != filepath.Join(s.Ollama[1], blobs+sum) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefusedOllama(t *testing.T) {
	const x = "registry.ollama.ai/library/x/latest"
	model := layer("model", "sha256:"+sum, 4)
	for name, c := range map[string]struct {
		ask    string
		layers []string
		want   error
		says   []string
	}{
		"nothing":   {"ollama:y:7b", []string{model}, ErrMissing, []string{"ollama pull y:7b"}},
		"other tag": {"ollama:x:7b", []string{model}, ErrMissing, []string{"ollama pull x:7b"}},
		"adapter":   {"ollama:x", []string{model, layer("adapter", "sha256:"+sum, 4)}, ErrMissing, []string{"adapter"}},
		"tensors":   {"ollama:x", []string{layer("tensor", "sha256:"+sum, 4)}, ErrMissing, []string{"no GGUF file"}},
		"two":       {"ollama:x", []string{model, model}, ErrDamaged, []string{"several", "ollama pull x:latest"}},
		"no blob": {"ollama:x", []string{layer("model", "sha256:"+strings.Repeat("0", 64), 4)}, ErrMissing,
			[]string{"half downloaded", "ollama pull x:latest"}},
		"another size":     {"ollama:x", []string{layer("model", "sha256:"+sum, 5)}, ErrDamaged, []string{"4 bytes", "says 5"}},
		"digest leads out": {"ollama:x", []string{layer("model", "sha256:../../"+sum, 4)}, ErrDamaged, []string{"digest"}},
		"no digest":        {"ollama:x", []string{layer("model", "", 4)}, ErrDamaged, []string{"digest"}},
		"negative":         {"ollama:x", []string{layer("model", "sha256:"+sum, -4)}, ErrDamaged, []string{"digest"}},
		"no JSON":          {"ollama:x", []string{"{"}, ErrDamaged, []string{"no manifest"}},
		"deep":             {"ollama:x", []string{strings.Repeat("[", 1<<19)}, ErrDamaged, []string{"no manifest"}},
		"a huge manifest":  {"ollama:x", []string{strings.Repeat(" ", maxManifest) + model}, ErrDamaged, []string{"more than"}},
		"no name":          {"ollama:", []string{model}, ErrMissing, []string{"ollama:NAME"}},
		"tag leads out":    {"ollama:x:../latest", []string{model}, ErrMissing, []string{"ollama:NAME"}},
		"name leads out":   {"ollama:../x", []string{model}, ErrMissing, []string{"ollama:NAME"}},
		"four parts":       {"ollama:a/b/c/x", []string{model}, ErrMissing, []string{"ollama:NAME"}},
		"two tags":         {"ollama:x:1:2", []string{model}, ErrMissing, []string{"ollama:NAME"}},
	} {
		_, err := ollama(t, x, c.layers...).Find(c.ask)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, wants %v", name, err, c.want)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, wants %q", name, err, part)
			}
		}
		if len(err.Error()) > 2000 {
			t.Errorf("%s: %d bytes", name, len(err.Error()))
		}
	}
}

// Files that are neither regular nor directories hold up nothing.
func TestPipes(t *testing.T) {
	s := ollama(t, "registry.ollama.ai/library/x/latest", layer("model", "sha256:"+sum, 4))
	blob := filepath.Join(s.Ollama[1], blobs+sum)
	tag := filepath.Join(s.Ollama[1], "manifests/registry.ollama.ai/library/x/pipe")
	h := hub(t, snapshot("config.json"))
	repository := filepath.Join(h.HuggingFace, "models--org--name")
	for _, path := range []string{blob, tag, filepath.Join(repository, "refs/main"),
		filepath.Join(h.HuggingFace, "models--org--pipe"), filepath.Join(h.HuggingFace, "models--org--b/snapshots")} {
		_ = os.Remove(path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s.HuggingFace = h.HuggingFace
	for _, ask := range []string{"ollama:x", "ollama:x:pipe", "org/name", "org/pipe", "org/b"} {
		failed := make(chan error, 1)
		go func() {
			_, err := s.Find(ask)
			failed <- err
		}()
		select {
		case err := <-failed:
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", ask, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits for a pipe", ask)
		}
	}
}

// asNobody runs fn on a thread that has another user's permissions, if this user may take them.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocks: Go then ends the thread
		if os.Getuid() == 0 {
			_ = unix.Setfsuid(65534) // also drops the right to pass over permissions
		}
		fn()
	}()
	<-done
}

// What this user may not read is said so, with what to do.
func TestUnreadable(t *testing.T) {
	const manifest = "registry.ollama.ai/library/x/latest"
	model := layer("model", "sha256:"+sum, 4)
	for name, c := range map[string]struct {
		stores Stores
		ask    string
		closed func(s Stores) string
	}{
		"repository": {hub(t, snapshot("config.json")), "org/name",
			func(s Stores) string { return s.HuggingFace + "/models--org--name" }},
		"cache": {hub(t, snapshot("config.json")), "org/name", func(s Stores) string { return s.HuggingFace }},
		"refs": {hub(t, snapshot("config.json")), "org/name",
			func(s Stores) string { return s.HuggingFace + "/models--org--name/refs" }},
		"blobs": {hub(t, snapshot("config.json")), "org/name",
			func(s Stores) string { return s.HuggingFace + "/models--org--name/blobs" }},
		"snapshot": {hub(t, snapshot("config.json")), "org/name",
			func(s Stores) string { return s.HuggingFace + "/models--org--name/snapshots/abc123" }},
		"Ollama":           {ollama(t, manifest, model), "ollama:x", func(s Stores) string { return s.Ollama[1] }},
		"Ollama's model":   {ollama(t, manifest, model), "ollama:x", func(s Stores) string { return s.Ollama[1] + "/blobs" }},
		"another of these": {ollama(t, manifest, model), "ollama:y", func(s Stores) string { return s.Ollama[1] }},
	} {
		closed := c.closed(c.stores)
		for dir := filepath.Dir(closed); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(closed, 0); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			_, err := c.stores.Find(c.ask)
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "may not read it") ||
				!strings.Contains(err.Error(), "--model") {
				t.Errorf("%s: %v", name, err)
			}
		})
		_ = os.Chmod(closed, 0o755) // for the removal of the directory
	}
}

// The stores are where huggingface_hub and Ollama look for them.
func TestHere(t *testing.T) {
	for _, c := range []struct {
		env          map[string]string
		hub, ollama  string
		ollamaStores int
	}{
		{map[string]string{"HOME": "/h"}, "/h/.cache/huggingface/hub", "/h/.ollama/models", 2},
		{map[string]string{"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub", "/h/.ollama/models", 2},
		{map[string]string{"HOME": "/h", "HF_HOME": "~/hf"}, "/h/hf/hub", "/h/.ollama/models", 2},
		{map[string]string{"HOME": "/h", "HF_HOME": "/hf", "HF_HUB_CACHE": "/hub", "OLLAMA_MODELS": "~/o"}, "/hub", "/h/o", 1},
		{map[string]string{"HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old", "/h/.ollama/models", 2},
	} {
		s := Here(func(name string) string { return c.env[name] })
		if s.HuggingFace != c.hub || s.Ollama[0] != c.ollama || len(s.Ollama) != c.ollamaStores {
			t.Errorf("%v: %+v", c.env, s)
		}
	}
}

// Text that cannot be a name is left to be a path.
func TestIs(t *testing.T) {
	for _, text := range []string{"", "name", "/org/name", "./org/name", "a/b/c", "org/name/", "org/na me", "../x",
		"org/name/tokenizer.json", "x.gguf", "ollama"} {
		if Is(text) {
			t.Errorf("%q", text)
		}
	}
	for path, want := range map[string]string{
		"/hub/models--org--name/snapshots/abc":          "org/name",
		"/hub/models--org--name/snapshots/abc/q/m.gguf": "org/name",
		"/hub/models--gpt2/snapshots/abc/":              "gpt2",
		"/hub/models--org--name/snapshots":              "",
		"/hub/models--org--name/blobs/abc":              "",
		"/hub/models--/snapshots/abc":                   "",
	} {
		if id, ok := Repository(path); id != want || ok != (want != "") {
			t.Errorf("%s: %q", path, id)
		}
	}
	if !errors.Is(explained(files.ErrNotRegular), files.ErrNotRegular) {
		t.Error("explained loses its error")
	}
}
