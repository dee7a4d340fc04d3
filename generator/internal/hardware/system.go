//go:build !cuda

package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"reel.internal/reel/generator/internal/config"
)

// system is the environment of choose. Tests have their own.
type system struct {
	libraries []string // globs of the driver's library
	nodes     string   // glob of the GPUs' device nodes
	beside    func() (string, error)
	exec      func(path string, args, env []string) error
	flush     func() // writes the log before exec
}

var thisSystem = system{
	libraries: []string{"/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1",
		"/usr/local/nvidia/lib*/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"},
	nodes:  "/dev/nvidia[0-9]*",
	beside: os.Executable,
	exec:   syscall.Exec,
}

// find looks for the program, the driver and a GPU.
func (s system) find() (p cudaProgram, err error) {
	if nodes, _ := filepath.Glob(s.nodes); len(nodes) == 0 {
		return p, fmt.Errorf("%w: there is no %s", config.ErrNoGPU, s.nodes)
	}
	driver := s.driver()
	if driver == "" {
		return p, fmt.Errorf("%w: no NVIDIA driver: libcuda.so.1 was not found", config.ErrNoGPU)
	}
	if p.path, err = s.findBeside(); err != nil {
		return p, err
	}
	// The loader may not search the folder of the driver that was found.
	p.env = append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_MODULE_LOADING=EAGER",
		"LD_LIBRARY_PATH="+filepath.Dir(driver)+string(filepath.ListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	return p, nil
}

func (s system) findBeside() (string, error) {
	self, err := s.beside()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), cudaBinary)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not beside this program: build it with make cuda", cudaBinary)
	}
	return path, nil
}

// driver returns the path of the driver's library, or an empty string.
func (s system) driver() string {
	patterns := s.libraries
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		patterns = append(patterns, filepath.Join(dir, "libcuda.so.1"))
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
