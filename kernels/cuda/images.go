package cuda

import (
	"fmt"
	"io/fs"
	"strings"
)

// Images are all kernels in the images that the driver loads: machine code for compute capabilities 8.0, 8.6, 8.9 and
// 9.0a, and PTX of 9.0 for newer GPUs. A model needs few of them, and a start waits for each that it loads.
type Images struct {
	files fs.FS
	of    map[string]string // a kernel's image
}

// OpenImages returns the images in a folder that the script collect has written.
func OpenImages(files fs.FS) (*Images, error) {
	index, err := fs.ReadFile(files, "index")
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	m := &Images{files: files, of: map[string]string{}}
	for line := range strings.Lines(string(index)) {
		kernel, image, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			return nil, fmt.Errorf("kernels: no image in the line %q of the index", line)
		}
		m.of[kernel] = image
	}
	return m, nil
}

// Image returns the name of the image that has this kernel, "" if none has.
func (m *Images) Image(kernel string) string { return m.of[kernel] }

// Read returns an image in the format of cuModuleLoadFatBinary.
func (m *Images) Read(image string) ([]byte, error) {
	data, err := fs.ReadFile(m.files, image+".fatbin")
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	return data, nil
}
