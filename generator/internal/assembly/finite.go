package assembly

import (
	"context"
	"errors"
	"fmt"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/weights"
)

// notFinite returns a [config.ErrConfig] that names a tensor with a NaN or an infinity. It returns
// nil if there is none, and if the weights cannot be read or ctx ends. It reads all weights.
func (l Prepared) notFinite(ctx context.Context, o config.Options) error {
	c := l.weights
	if l.Hardware.Packed { // the device has a copy, and the files are closed
		files, _, err := ModelFiles(o)
		if err == nil {
			c, err = weights.Open(files)
		}
		if err != nil {
			return nil
		}
		defer c.Close()
	}
	if err := c.Finite(ctx); errors.Is(err, weights.ErrNotFinite) {
		return CannotServe(Place(o.Model), fmt.Errorf("%w: download the file again, or use another checkpoint", err))
	}
	return nil
}
