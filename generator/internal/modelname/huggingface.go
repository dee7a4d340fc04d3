package modelname

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/files"
)

// repository matches ORG/NAME, and ORG/NAME/FILE.gguf.
var repository = regexp.MustCompile(`^([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:/(.{1,255}\.gguf))?$`)

// cached is a repository in the Hugging Face cache:
//
//	models--ORG--NAME/refs/main           the commit that the last download gave
//	models--ORG--NAME/snapshots/COMMIT/…  symbolic links to blobs; a file of which the download is not complete has none
//	models--ORG--NAME/blobs/…             contents; *.incomplete while a download runs, or if it was cut
type cached struct {
	id   string // ORG/NAME
	file string // the GGUF file that was asked for, or empty
	dir  string
}

// repository returns the place of a repository, which need not exist.
func (s Stores) repository(text string) (r cached, err error) {
	parts := repository.FindStringSubmatch(text)
	if parts == nil || strings.Contains(parts[1], "--") || strings.Contains(parts[1], "..") ||
		parts[2] != "" && !fs.ValidPath(parts[2]) {
		return r, config.Refuse(ErrMissing, "there is no such path, and it is no repository's name either")
	}
	return cached{id: parts[1], file: parts[2],
		dir: filepath.Join(s.HuggingFace, "models--"+strings.Replace(parts[1], "/", "--", 1))}, nil
}

// find returns the directory of a checkpoint or, if there is none, the only GGUF file.
func (r cached) find() (Found, error) {
	snapshot, err := r.snapshot()
	if err != nil {
		return Found{}, err
	}
	held, err := tree(snapshot, 3)
	if err != nil {
		return Found{}, explained(err)
	}
	models := slices.DeleteFunc(slices.Clone(held), func(name string) bool { return !isModel(name) })
	switch {
	case r.file != "":
		return r.named(snapshot, held)
	case slices.Contains(held, "model.safetensors") || slices.Contains(held, "model.safetensors.index.json"):
		held = slices.DeleteFunc(held, func(name string) bool { return path.Ext(name) == ".gguf" })
		return Found{snapshot, r.id}, r.readable(snapshot, held)
	case len(models) == 1:
		return Found{filepath.Join(snapshot, models[0]), r.id}, r.readable(snapshot, models)
	case len(models) > 1:
		return Found{}, config.Refuse(ErrSeveral, "the repository has %d GGUF files: give one, as in --model %s/%s; "+
			"they are %s", len(models), r.id, shown(models[0]), listed(models))
	case !slices.Contains(held, "config.json"):
		return Found{}, r.incomplete("%s has neither config.json nor a GGUF file", shown(snapshot))
	}
	return Found{snapshot, r.id}, r.readable(snapshot, held) // plan needs no weights
}

// snapshot returns the directory of the commit in refs/main, or the only one.
func (r cached) snapshot() (string, error) {
	dir := filepath.Join(r.dir, "snapshots")
	entries, err := list(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(r.dir):
		return "", config.Refuse(ErrMissing, "there is no such path, and no such repository in the Hugging Face "+
			"cache %s: run hf download %s, or give the path of a model", shown(filepath.Dir(r.dir)), r.get())
	case errors.Is(err, fs.ErrNotExist):
		return "", r.incomplete("%s has no snapshot", shown(r.dir))
	case err != nil:
		return "", explained(err)
	}
	var commits []string
	for _, e := range entries {
		if commit.MatchString(e.Name()) {
			commits = append(commits, e.Name())
		}
	}
	main, err := files.Read(files.Dir(r.dir), "refs/main", maxRef)
	if errors.Is(err, fs.ErrNotExist) {
		return r.only(dir, commits)
	}
	name := strings.TrimSpace(string(main))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", explained(err)
	case err != nil || !commit.MatchString(name):
		return "", config.Refuse(ErrDamaged, "refs/main in %s names no commit: remove the directory, and run "+
			"hf download %s", shown(r.dir), r.id)
	case !slices.Contains(commits, name):
		return "", r.incomplete("%s lacks the snapshot %s that refs/main names", shown(r.dir), name)
	}
	return filepath.Join(dir, name), nil
}

// only returns the directory of the only commit, where refs/main names none.
func (r cached) only(dir string, commits []string) (string, error) {
	switch len(commits) {
	case 0:
		return "", r.incomplete("%s has no snapshot", shown(r.dir))
	case 1:
		return filepath.Join(dir, commits[0]), nil
	}
	return "", config.Refuse(ErrSeveral, "%s has %d snapshots and no refs/main: give one with its path, as in "+
		"--model %s; they are %s", shown(r.dir), len(commits), shown(filepath.Join(dir, commits[0])), listed(commits))
}

// maxRef bounds the bytes of refs/main, and commit matches its content.
const maxRef = 1 << 10

var commit = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// named returns the GGUF file that was asked for.
func (r cached) named(snapshot string, held []string) (Found, error) {
	if !slices.Contains(held, r.file) {
		models := slices.DeleteFunc(held, func(name string) bool { return !strings.HasSuffix(name, ".gguf") })
		return Found{}, config.Refuse(ErrMissing, "the Hugging Face cache does not hold that file of %s: run hf download "+
			"%s; it holds %s", r.id, r.get(), listed(append(models, "no other")[:max(1, len(models))]))
	}
	name := strings.TrimSuffix(laterPart.ReplaceAllString(path.Base(r.file), ""), ".gguf")
	return Found{filepath.Join(snapshot, filepath.FromSlash(r.file)), name}, r.readable(snapshot, []string{r.file})
}

// readable opens the files that a model is read from. A link whose blob is missing, half a download, is found so.
func (r cached) readable(snapshot string, names []string) error {
	for _, name := range names {
		if !isRead(name) {
			continue
		}
		f, err := files.Open(filepath.Join(snapshot, filepath.FromSlash(name)))
		switch {
		case err == nil:
			_ = f.Close() // it was only read
		case errors.Is(err, fs.ErrNotExist):
			return r.incomplete("the blob of %s in %s is missing", shown(name), shown(snapshot))
		case errors.Is(err, files.ErrNotRegular):
			return config.OfKind(err, ErrDamaged)
		default:
			return explained(err)
		}
	}
	return nil
}

// isRead reports whether a model may be read from a file: a GGUF file, or one at the top of a checkpoint.
func isRead(name string) bool {
	ext := path.Ext(name)
	return ext == ".gguf" || path.Dir(name) == "." && (ext == ".json" || ext == ".safetensors")
}

// get returns the argument of hf download.
func (r cached) get() string { return strings.TrimSpace(r.id + " " + r.file) }

// incomplete returns the error of a download that has not ended, or has lost files.
func (r cached) incomplete(format string, args ...any) error {
	running := ""
	if blobs, err := list(filepath.Join(r.dir, "blobs")); err == nil &&
		slices.ContainsFunc(blobs, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".incomplete") }) {
		running = ", and a download was cut or still runs"
	}
	return config.Refuse(ErrMissing, "%s%s: run hf download %s", fmt.Sprintf(format, args...), running, r.get())
}

// laterPart matches the end of the name of a part of a GGUF file in several.
var laterPart = regexp.MustCompile(`-(\d{5})-of-\d{5}\.gguf$`)

// isModel reports whether a file is a GGUF file of a whole model, or the first part of one. Files for images and for
// drafts begin with mmproj and mtp.
func isModel(name string) bool {
	base := path.Base(name)
	if !strings.HasSuffix(base, ".gguf") || strings.HasPrefix(base, "mmproj") || strings.HasPrefix(base, "mtp-") {
		return false
	}
	part := laterPart.FindStringSubmatch(base)
	return part == nil || part[1] == "00001"
}

// tree returns the names of the files in dir, and in directories up to deep below it. Links are not followed. Files and
// directories together are bounded: a user who can write to a shared cache could otherwise hold up another's start.
func tree(dir string, deep int) (names []string, err error) {
	seen := 0
	var walk func(name string, deep int) error
	walk = func(name string, deep int) error {
		entries, err := list(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if seen += len(entries); seen > maxEntries {
			return config.Refuse(ErrDamaged, "%s has more than %d files and directories", shown(dir), maxEntries)
		}
		for _, e := range entries {
			inner := path.Join(name, e.Name())
			if !e.IsDir() {
				names = append(names, inner)
				continue
			}
			if deep == 0 {
				continue
			}
			if err := walk(inner, deep-1); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk(".", deep)
	return names, err
}

// Repository returns ORG/NAME of a path in a snapshot of the Hugging Face cache,
// models--ORG--NAME/snapshots/COMMIT/….
func Repository(path string) (id string, ok bool) {
	parts := strings.Split(filepath.Clean(path), string(os.PathSeparator))
	for i := len(parts) - 3; i >= 0; i-- {
		if name, is := strings.CutPrefix(parts[i], "models--"); is && name != "" && parts[i+1] == "snapshots" {
			return strings.Replace(name, "--", "/", 1), true
		}
	}
	return "", false
}
