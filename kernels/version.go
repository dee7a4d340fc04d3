package kernels

// Versions of what a stored page of keys and values depends on beside the model and the device. Pages of another
// version are never read again.
const (
	// SumOrder is the version of the order of sums in the prefill class. Raise it whenever a kernel, or the choice of
	// one, changes an order, a rounding or a formula: the same tokens then have other bits.
	SumOrder = 11
	// PageLayout is the version of the places of keys and values in a page. Raise it whenever they change.
	PageLayout = 1
)
