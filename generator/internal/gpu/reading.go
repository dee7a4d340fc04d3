// Package gpu reads a GPU's load, temperature, power and faults from NVIDIA's management
// library (NVML). It needs no CUDA context.
package gpu

// Reading is a GPU's state at one moment. Values that the GPU or its driver does not report
// are nil.
type Reading struct {
	GPU         int               // the GPU's number, as in --gpu
	Utilisation *float64          // share of the time in which a kernel ran, 0 to 1
	Temperature *float64          // degrees Celsius
	Power       *float64          // watts
	Throttling  map[string]bool   // by each known reason for reduced clocks: whether it applies now
	ECC         map[string]uint64 // memory errors by kind: corrected, uncorrected
	Xid         map[uint64]uint64 // number of driver errors since Open, by Xid
}
