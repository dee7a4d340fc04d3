package assembly

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/modelname"
	"reel.internal/reel/generator/tiny"
)

// ModelFiles returns the files and the name of the model that o selects: those of a directory, or
// one GGUF file and its other parts, which is a [weights.GGUF]. A name is located first, see [Locate]. For another
// path the error describes it and names the next command.
func ModelFiles(o config.Options) (fs.FS, string, error) {
	o, _, err := Locate(o)
	if err != nil {
		return nil, "", err
	}
	if o.Model == "" {
		return tiny.Files, cmp.Or(o.Name, EmbeddedName), nil
	}
	path, err := filepath.Abs(o.Model)
	if err == nil && isGGUF(path) {
		f := ggufFile{files.Dir(filepath.Dir(path)), filepath.Base(path)}
		return f, cmp.Or(o.Name, strings.TrimSuffix(partOf.ReplaceAllString(f.name, ""), ".gguf")), nil
	}
	if err == nil {
		err = notModel(path)
	}
	if err != nil {
		return nil, "", config.Refuse(config.ErrConfig, "model %s: %w", o.Model, err)
	}
	return files.Dir(path), cmp.Or(o.Name, nameOf(path)), nil
}

// nameOf returns the name of the model in a directory: the directory's own name or, for a
// snapshot in the Hugging Face cache (models--ORG--NAME/snapshots/COMMIT), ORG/NAME.
func nameOf(path string) string {
	if name, ok := modelname.Repository(path); ok {
		return name
	}
	return filepath.Base(path)
}

// cachedName returns the repository of a directory of the Hugging Face cache.
func cachedName(path string) (repository string, ok bool) {
	name, ok := strings.CutPrefix(filepath.Base(path), "models--")
	return strings.Replace(name, "--", "/", 1), ok && name != ""
}

// Place returns the path of a model's directory for messages, or the embedded model's name if dir
// is empty.
func Place(dir string) string {
	if dir == "" {
		return EmbeddedName
	}
	if path, err := filepath.Abs(dir); err == nil {
		return path
	}
	return dir
}

// wanted describes a model's directory, and download is the command that makes one.
const (
	wanted   = "a GGUF file, or a directory with config.json, tokenizer.json and safetensors"
	download = "hf download ORG/NAME --local-dir DIR, then give --model DIR"
)

// notModel returns an error for a path that is no model's directory.
func notModel(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: give %s, or a name as ORG/NAME or ollama:NAME", err, wanted)
	case err != nil:
		return fmt.Errorf("%w: give %s", err, wanted)
	case !info.IsDir():
		return notDirectory(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // opening the files gives the reason
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if name, ok := cachedName(path); ok && slices.Contains(names, "snapshots") {
		return notSnapshot(path, name)
	}
	if !slices.Contains(names, "config.json") {
		return notCheckpoint(path, names)
	}
	return notPointers(path, names)
}

// maxRef bounds the bytes of the cache's file that names a commit.
const maxRef = 1 << 10

// commit matches the name of a snapshot.
var commit = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// notDirectory describes a file.
func notDirectory(path string) error {
	switch {
	case strings.HasSuffix(path, ".safetensors") || strings.HasSuffix(path, ".json"):
		return fmt.Errorf("it is not a directory but one file of a model: give --model %s", filepath.Dir(path))
	}
	return fmt.Errorf("it is not a directory: give %s", wanted)
}

// notSnapshot names the snapshot in a directory of the Hugging Face cache.
func notSnapshot(path, name string) error {
	const is = "it is a directory of the Hugging Face cache, not a model's own"
	revision, err := files.Read(files.Dir(path), "refs/main", maxRef)
	hash := strings.TrimSpace(string(revision))
	snapshot := filepath.Join(path, "snapshots", hash)
	if err == nil && commit.MatchString(hash) && exists(filepath.Join(snapshot, "config.json")) {
		return fmt.Errorf("%s: give --model %s", is, snapshot)
	}
	return fmt.Errorf("%s, and it has no complete snapshot of a checkpoint: run hf download %s, then give --model %s",
		is, name, name)
}

// notCheckpoint describes a directory without config.json.
func notCheckpoint(path string, names []string) error {
	has := func(part string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, part) })
	}
	switch {
	case has(".gguf"):
		return fmt.Errorf("it has GGUF files and no config.json: give one of them, as in --model %s",
			filepath.Join(path, names[slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".gguf") })]))
	case has("adapter_config.json"):
		return errors.New("it has an adapter and no config.json: merge the adapter into its base model, for example " +
			"with merge_and_unload of peft, save the result, and give --model with its directory")
	case has("params.json"):
		return fmt.Errorf("it has a model in its authors' own form and no config.json: take the repository in "+
			"the form of transformers, with %s", download)
	}
	return fmt.Errorf("%s has no config.json: give %s, or download the whole repository with %s",
		path, wanted, download)
}

// notPointers refuses a checkout in which Git LFS left pointers in place of large files.
func notPointers(path string, names []string) error {
	for _, name := range names {
		large := strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".json")
		if large && beginsWith(filepath.Join(path, name), "version https://git-lfs.github.com/spec/") {
			return fmt.Errorf("%.80q is a pointer of Git LFS and not the file itself: run git lfs pull in %s, or "+
				"download the repository with %s", name, path, download)
		}
	}
	return nil
}

// beginsWith reports whether a regular file begins with prefix.
func beginsWith(path, prefix string) bool {
	f, err := files.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(prefix))
	n, _ := f.ReadAt(head, 0)
	return bytes.Equal(head[:n], []byte(prefix))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
