package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Checkpoint holds the tensors of a model. Goroutines may share it; Close comes
// after the last of them is done.
//
// Files of the operating system are mapped. If a mapped file shrinks, reading a lost
// page raises SIGBUS, which ends the process unless [Guard] catches it. If a file is
// rewritten in place, readers see a mixture of old and new bytes.
// [Checkpoint.Unchanged], called after the last read, detects both; [Watch] detects
// them while reads go on. Replacing a file by a rename does no harm.
type Checkpoint struct {
	files    []*file
	tensors  map[string]Tensor
	gguf     string   // name of a GGUF file or of its first part; else empty
	metadata Metadata // nil for safetensors
}

// Open reads and checks the headers of model.safetensors. If that file does not
// exist, it opens the shards that model.safetensors.index.json names. If fsys is a
// [GGUF], it opens that file instead. Every byte of a file after its header must belong
// to exactly one tensor; GGUF has padding between tensors. The error wraps one of this
// package's or the error of fsys.
func Open(fsys fs.FS) (*Checkpoint, error) {
	c := &Checkpoint{tensors: map[string]Tensor{}}
	err := Guard(func() error {
		if g, ok := fsys.(GGUF); ok {
			return c.addGGUF(fsys, g.GGUF())
		}
		_, err := c.add(fsys, singleName)
		if errors.Is(err, fs.ErrNotExist) {
			err = c.addIndexed(fsys)
		}
		return err
	})
	if errors.Is(err, ErrChanged) {
		err = errors.Join(err, c.Unchanged()) // names the file
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("weights: %w", err), c.Close())
	}
	return c, nil
}

// opened is called with the name of each mapped file. A test changes the file then.
var opened = func(string) {}

// add opens one file, adds its tensors to c and returns them.
func (c *Checkpoint) add(fsys fs.FS, name string) ([]Tensor, error) {
	f, err := openFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.files = append(c.files, f)
	opened(name)
	tensors, err := parse(f, maxTensors-len(c.tensors))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.setMiddles(tensors)
	for i := range tensors {
		tensors[i].File, tensors[i].mapped = name, f.mapped != nil
		c.tensors[tensors[i].Name] = tensors[i]
	}
	return tensors, nil
}

// addIndexed opens the shards that the index names. Each must hold exactly the
// tensors that the index places in it, so no two shards hold the same tensor.
func (c *Checkpoint) addIndexed(fsys fs.FS) error {
	shardOf, err := readIndex(fsys)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("neither %s nor %s: %w", singleName, indexName, fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	for _, shard := range slices.Compact(slices.Sorted(maps.Values(shardOf))) {
		tensors, err := c.add(fsys, shard)
		if err != nil {
			return err
		}
		for _, t := range tensors {
			if shardOf[t.Name] != shard {
				return fmt.Errorf("%s: tensor %.80q: %w: the index does not place it here", shard, t.Name, ErrIndex)
			}
		}
	}
	for name, shard := range shardOf {
		if _, ok := c.tensors[name]; !ok {
			return fmt.Errorf("%s: tensor %.80q: %w: the shard lacks it", shard, name, ErrIndex)
		}
	}
	return nil
}

// Tensor returns a tensor by its name. The error is ErrMissing.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	t, ok := c.tensors[name]
	if !ok {
		return Tensor{}, fmt.Errorf("weights: %s: %.80q: %w", c.name(), name, ErrMissing)
	}
	return t, nil
}

// Metadata returns the metadata of a GGUF file, of the first part if it has several; nil of safetensors.
func (c *Checkpoint) Metadata() Metadata { return c.metadata }

// DropMetadata frees the metadata, which holds a tokenizer of several megabytes.
func (c *Checkpoint) DropMetadata() { c.metadata = nil }

// name returns the file that lists the tensors: the index, the single file, or a GGUF file's first part.
func (c *Checkpoint) name() string {
	if c.gguf != "" {
		return c.gguf
	}
	if len(c.files) == 1 && c.files[0].name == singleName {
		return singleName
	}
	return indexName
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Unchanged returns ErrChanged with the file's name if the size or the modification
// time of a mapped file differs from those at Open.
func (c *Checkpoint) Unchanged() error {
	for _, f := range c.files {
		if err := f.unchanged(); err != nil {
			return fmt.Errorf("weights: %s: %w", f.name, err)
		}
	}
	return nil
}

// Close unmaps the files, which invalidates the Data of every Tensor.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.forget() {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// Release is [Checkpoint.Close] that returns before the files are unmapped, which takes 0.3 s for 13 GB; a goroutine
// goes on with that. They are closed.
func (c *Checkpoint) Release() error {
	files := slices.DeleteFunc(c.forget(), func(f *file) bool { return f.mapped == nil })
	var errs []error
	for _, f := range files {
		errs = append(errs, f.mapped.Close())
	}
	go func() {
		for _, f := range files {
			_ = f.unmap() // fails only for memory that is not mapped
		}
	}()
	return errors.Join(errs...)
}

// forget returns the files, and leaves none.
func (c *Checkpoint) forget() []*file {
	files := c.files
	c.files, c.tensors, c.metadata = nil, nil, nil
	return files
}
