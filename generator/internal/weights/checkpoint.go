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

// Checkpoint is a model's tensors. It may be used by many goroutines; Close
// comes after all of them.
//
// Files of the operating system are mapped, not read. One that shrinks while
// it is mapped raises SIGBUS where a lost page is read, which ends the process
// unless Guard is there, and one that is rewritten in place gives a mixture.
// Unchanged, called after the last read, tells of both where the process still
// lives: nil means that all that was read is what Open checked. Watch tells of both
// while tensors are read on. A file that is replaced by rename harms nothing.
type Checkpoint struct {
	files   []*file
	tensors map[string]Tensor
}

// Open reads the headers of model.safetensors, or where it does not exist of
// the shards that model.safetensors.index.json names, and checks them: every
// byte of a file belongs to exactly one tensor. The error wraps one of this
// package's, or what fsys returned.
func Open(fsys fs.FS) (*Checkpoint, error) {
	c := &Checkpoint{tensors: map[string]Tensor{}}
	err := Guard(func() error {
		_, err := c.add(fsys, singleName)
		if errors.Is(err, fs.ErrNotExist) {
			err = c.addIndexed(fsys)
		}
		return err
	})
	if errors.Is(err, ErrChanged) {
		err = errors.Join(err, c.Unchanged()) // which names the file
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("weights: %w", err), c.Close())
	}
	return c, nil
}

// opened is told of each file that was mapped; a test changes it then.
var opened = func(string) {}

// add opens one file, enters its tensors and returns them.
func (c *Checkpoint) add(fsys fs.FS, name string) ([]Tensor, error) {
	f, err := openFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.files = append(c.files, f)
	opened(name)
	tensors, err := parse(f.data, maxTensors-len(c.tensors))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.place(tensors)
	for i := range tensors {
		tensors[i].File = name
		c.tensors[tensors[i].Name] = tensors[i]
	}
	return tensors, nil
}

// addIndexed opens the shards of the index. Each must hold just the tensors
// that the index says, so no two can hold the same.
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

// Tensor returns the tensor of that name. The error is ErrMissing.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	t, ok := c.tensors[name]
	if !ok {
		return Tensor{}, fmt.Errorf("weights: %s: %.80q: %w", c.name(), name, ErrMissing)
	}
	return t, nil
}

// name is the file that says which tensors there are.
func (c *Checkpoint) name() string {
	if len(c.files) == 1 && c.files[0].name == singleName {
		return singleName
	}
	return indexName
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Unchanged returns ErrChanged, and which file, where size or modification
// time of a mapped file is no longer what it was at Open.
func (c *Checkpoint) Unchanged() error {
	for _, f := range c.files {
		if err := f.unchanged(); err != nil {
			return fmt.Errorf("weights: %s: %w", f.name, err)
		}
	}
	return nil
}

// Close unmaps the files. Every Tensor's Data is invalid from here on.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.close())
	}
	c.files, c.tensors = nil, nil
	return errors.Join(errs...)
}
