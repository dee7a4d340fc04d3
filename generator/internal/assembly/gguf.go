package assembly

import (
	"io/fs"
	"regexp"

	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/server"
)

// ggufFile is the file system of a model in one GGUF file. It shows that file and, if it is the
// first of several parts, the others, but nothing else of its directory: a tokenizer.json beside the
// file may belong to another model.
type ggufFile struct {
	dir  files.Dir
	name string
}

// partOf matches the end of the name of a part.
var partOf = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// GGUF returns the name of the file.
func (f ggufFile) GGUF() string { return f.name }

// Open opens the file or another part of it.
func (f ggufFile) Open(name string) (fs.File, error) {
	own := partOf.ReplaceAllString(f.name, "")
	if name != f.name && (own == f.name || partOf.ReplaceAllString(name, "") != own) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.dir.Open(name)
}

// openGGUF reads the config and the headers of a GGUF file.
func (l *Prepared) openGGUF(files fs.FS) (source, error) {
	l.tokenizer, l.decoder = idsOnly{}, func([]int32) server.Decoder { return idsOnly{} }
	l.warnings = append(l.warnings, noGGUFTokenizer)
	return openSource(files)
}

// isGGUF reports whether a regular file begins as GGUF does.
func isGGUF(path string) bool { return beginsWith(path, "GGUF") }
