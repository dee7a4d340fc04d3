//go:build cuda

package cuda

import _ "embed"

// Fatbin holds every kernel of kernels/*.cu, as cuModuleLoadData takes it: machine
// code for compute capability 8.0, 8.6, 8.9 and 9.0a, and PTX of 9.0 for what is
// newer. `make cuda` writes the file.
//
//go:embed kernels.fatbin
var Fatbin []byte
