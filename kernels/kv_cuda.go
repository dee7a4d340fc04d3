//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// units returns how many layers of the size of the op's would fill a page before it, and the whole page. Kernels find
// places so, as if all layers were alike.
func (k KV) units(layer int) (before, all int) {
	n := k.layer().elements()
	return k.start(layer) / n, k.token() / n
}

// checkUnits refuses a page that cannot be counted so.
func (k KV) checkUnits(layer int) error {
	if n := k.layer().elements(); k.start(layer)%n != 0 || k.token()%n != 0 {
		return fmt.Errorf("%w: keys and values on a GPU at %d of %d elements of a page, which are no multiples of a layer's",
			device.ErrBadShape, k.start(layer), k.token())
	}
	return nil
}
