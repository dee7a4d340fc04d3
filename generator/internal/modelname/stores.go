// Package modelname finds models that other programs have downloaded, by the names that these give them: ORG/NAME in
// the cache of Hugging Face, and ollama:NAME:TAG in a store of Ollama. It downloads nothing. What it reads is bounded,
// because other users may have written it.
package modelname

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/config"
)

// Kinds of errors. Their texts name the command to run next.
var (
	ErrMissing = errors.New("not on this machine")             // or not completely
	ErrSeveral = errors.New("more than one model of the name") // the text lists them
	ErrDamaged = errors.New("damaged store")                   // something that no download writes
)

// Stores are the directories in which other programs keep models.
type Stores struct {
	HuggingFace string   // of models--ORG--NAME
	Ollama      []string // of manifests and blobs; the first that holds a model wins
}

// Here returns the stores of this process's user, as huggingface_hub and Ollama find them. env returns a variable of
// the environment.
func Here(env func(string) string) (s Stores) {
	home := env("HOME")
	cache := cmp.Or(env("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
	hub := filepath.Join(cmp.Or(env("HF_HOME"), filepath.Join(cache, "huggingface")), "hub")
	s.HuggingFace = expand(cmp.Or(env("HF_HUB_CACHE"), env("HUGGINGFACE_HUB_CACHE"), hub), home)
	if dir := env("OLLAMA_MODELS"); dir != "" {
		s.Ollama = []string{expand(dir, home)}
		return s
	}
	s.Ollama = []string{filepath.Join(home, ".ollama/models"), "/usr/share/ollama/.ollama/models"}
	return s
}

// expand replaces a leading ~ by the home directory.
func expand(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}

// Found is a model in a store.
type Found struct {
	Path string // a directory, or a GGUF file
	Name string // for clients and logs
}

// Is reports whether text has the form of a name. It may be a path as well.
func Is(text string) bool {
	return strings.HasPrefix(text, ollamaPrefix) || repository.MatchString(text)
}

// Find returns the model of a name. Errors: [ErrMissing], [ErrSeveral], [ErrDamaged], and those of the file system,
// such as [fs.ErrPermission].
func (s Stores) Find(text string) (Found, error) {
	if name, ok := strings.CutPrefix(text, ollamaPrefix); ok {
		return s.findOllama(name)
	}
	r, err := s.repository(text)
	if err != nil {
		return Found{}, err
	}
	return r.find()
}

// Place returns the directory or the file that a store has for a name, and whether it exists.
func (s Stores) Place(text string) (place string, held bool) {
	if name, ok := strings.CutPrefix(text, ollamaPrefix); ok {
		n, err := parseOllama(name)
		for _, store := range s.Ollama {
			if path := n.manifest(store); err == nil && exists(path) {
				return path, true
			}
		}
		return "", false
	}
	r, err := s.repository(text)
	return r.dir, err == nil && exists(r.dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// maxEntries bounds the entries of a directory.
const maxEntries = 4096

// list returns the entries of a directory, sorted. It does not wait for a pipe in its place.
func list(dir string) ([]fs.DirEntry, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries + 1)
	if len(entries) > maxEntries {
		return nil, config.Refuse(ErrDamaged, "%s has more than %d entries", shown(dir), maxEntries)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	if errors.Is(err, io.EOF) { // an empty directory
		err = nil
	}
	return entries, err
}

// explained adds advice to an error of the file system.
func explained(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("user %d may not read it: %w: ask its owner for a copy, and give --model with its path",
			os.Getuid(), err)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return config.OfKind(err, ErrDamaged)
	}
	return err
}

// maxShown bounds the names that an error lists.
const maxShown = 20

// shown returns a name for a message, in quotes if it could upset a terminal.
func shown(name string) string {
	if len(name) > 400 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name[:min(len(name), 100)])
	}
	return name
}

// listed returns names for a message.
func listed(names []string) string {
	var all []string
	for _, name := range names[:min(len(names), maxShown)] {
		all = append(all, shown(name))
	}
	if more := len(names) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
