//go:build cuda

package cuda

import (
	"embed"
	"io/fs"
)

//go:embed images
var embedded embed.FS

// Kernels are all kernels of kernels/*.cu. `make cuda` writes the files.
var Kernels = func() *Images {
	files, err := fs.Sub(embedded, "images")
	if err != nil {
		panic(err)
	}
	m, err := OpenImages(files)
	if err != nil {
		panic(err) // the build embeds the index
	}
	return m
}()
