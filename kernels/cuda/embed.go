//go:build cuda

package cuda

import _ "embed"

// Fatbin holds every kernel of kernels/*.cu in the format of cuModuleLoadData: machine code
// for compute capabilities 8.0, 8.6, 8.9 and 9.0a, and PTX of 9.0 for newer GPUs. `make cuda`
// writes the file.
//
//go:embed kernels.fatbin
var Fatbin []byte
