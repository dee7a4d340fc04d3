package weights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// file is the content of one file: mapped, or copied if fsys gives no descriptor.
type file struct {
	name   string
	data   []byte
	mapped *os.File // nil for a copy
	opened fs.FileInfo
	header []byte // the part of data that lists the tensors
	// middles are the offsets in data of the middle of each tensor.
	middles []int
}

// openFile opens a regular file. It refuses other kinds after fsys.Open, so that call
// must not block on a FIFO or a device.
func openFile(fsys fs.FS, name string) (*file, error) {
	opened, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	f := &file{name: name}
	if f.opened, err = opened.Stat(); err == nil {
		err = f.load(opened)
	}
	if f.mapped == nil {
		opened.Close()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// load maps or reads the file.
func (f *file) load(opened fs.File) error {
	if !f.opened.Mode().IsRegular() {
		return fmt.Errorf("not a regular file: %w", fs.ErrInvalid)
	}
	size := f.opened.Size()
	if size < prefixSize {
		return fmt.Errorf("%w: %d bytes", ErrTruncated, size)
	}
	osFile, ok := opened.(*os.File)
	if !ok {
		f.data = make([]byte, size)
		_, err := io.ReadFull(opened, f.data)
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = ErrChanged
		}
		return err
	}
	data, err := unix.Mmap(int(osFile.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	f.data, f.mapped = data, osFile
	return nil
}

// setMiddles records the middle of each tensor, whose data is a part of f.data.
func (f *file) setMiddles(tensors []Tensor) {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	for _, t := range tensors {
		if len(t.Data) > 0 {
			at := int(uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) - begin)
			f.middles = append(f.middles, at+len(t.Data)/2)
		}
	}
}

func (f *file) unchanged() error {
	if f.mapped == nil {
		return nil
	}
	now, err := f.mapped.Stat()
	if err != nil {
		return err
	}
	if now.Size() != f.opened.Size() || !now.ModTime().Equal(f.opened.ModTime()) {
		return fmt.Errorf("%w: it had %d bytes, modified %v, and now has %d, modified %v", ErrChanged,
			f.opened.Size(), f.opened.ModTime(), now.Size(), now.ModTime())
	}
	return nil
}

func (f *file) close() error {
	if f.mapped == nil {
		return nil
	}
	return errors.Join(f.unmap(), f.mapped.Close())
}

// unmapAtOnce is how many bytes are taken out of a mapping at once.
const unmapAtOnce = 16 << 20

// unmap takes the file's pages out of the mapping piece by piece. All of a 7B take 0.3 s, and if the kernel did that in
// one call, whoever maps memory meanwhile, as Go's heap does when it grows, would wait for it.
func (f *file) unmap() error {
	for piece := range slices.Chunk(f.data, unmapAtOnce) {
		_ = unix.Madvise(piece, unix.MADV_DONTNEED) // Munmap takes out what it leaves
	}
	return unix.Munmap(f.data)
}
