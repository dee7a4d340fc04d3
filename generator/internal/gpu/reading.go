// Package gpu reads what NVIDIA's management library (NVML) tells of a GPU: load,
// heat, power and faults. It needs no CUDA context, and touches none.
package gpu

// Reading is a GPU at one moment. What the GPU or its driver does not tell is nil.
type Reading struct {
	Utilisation *float64        // share of the time in which a kernel ran, 0 to 1
	Temperature *float64        // degrees Celsius
	Power       *float64        // watts
	Throttling  map[string]bool // why clocks are below what they could be; every reason that Reel knows
	ECC         map[string]uint64
	Xid         map[uint64]uint64 // errors that the driver reported since the start, by their number
}
