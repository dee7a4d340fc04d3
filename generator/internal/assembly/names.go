package assembly

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/modelname"
	"reel.internal/reel/generator/internal/weights"
)

// Locate replaces a name in another program's store, ORG/NAME or ollama:NAME, by the path that it has now, and sets
// the model's name to it. So a download while the generator runs changes none of its files. A path stays as it is; if a
// store has that name too, note says so in a line for the operator. Errors are [config.ErrConfig].
func Locate(o config.Options) (located config.Options, note string, err error) {
	if !modelname.Is(o.Model) {
		return o, "", nil
	}
	stores := modelname.Here(os.Getenv)
	if _, err := os.Lstat(o.Model); err == nil || errors.Is(err, fs.ErrPermission) {
		if place, held := stores.Place(o.Model); held {
			note = fmt.Sprintf("--model %s: the path %s is taken, and not the model of that name in %s",
				o.Model, Place(o.Model), place)
		}
		return o, note, nil
	}
	found, err := stores.Find(o.Model)
	if err != nil {
		return o, "", config.Refuse(config.ErrConfig, "model %s: %w", o.Model, err)
	}
	o.Model, o.Name = found.Path, cmp.Or(o.Name, found.Name)
	return o, "", nil
}

// downloadAgain returns advice for weights that are missing or cut, of a model in the Hugging Face cache.
func downloadAgain(path string, err error) string {
	id, ok := modelname.Repository(path)
	switch {
	case ok && errors.Is(err, fs.ErrNotExist):
		return ": run hf download " + id
	case ok && errors.Is(err, weights.ErrTruncated):
		return ": run hf download --force-download " + id
	}
	return ""
}
