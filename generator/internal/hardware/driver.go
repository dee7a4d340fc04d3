package hardware

import (
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/kernels/device"
)

// TryName is the command that shows whether the driver takes the program.
const TryName = "try-driver"

// startDriver calls start, which returns [device.ErrBusy] while the machine sets up its GPUs, until patience has ended
// or a signal comes from stop. Errors: [config.ErrNoGPU], [device.ErrBusy], [config.ErrSignal].
func startDriver(start func() error, patience Retry, stop <-chan os.Signal, log zerolog.Logger) error {
	told := false
	return patience.WhileBusy(func(_ float64, what string) {
		if !told {
			log.Warn().Msg(what)
		}
		told = true
	}, func() error {
		select {
		case <-stop:
			return config.ErrSignal
		default:
		}
		err := start()
		if err != nil && !errors.Is(err, device.ErrBusy) {
			err = fmt.Errorf("%w: %w", config.ErrNoGPU, err)
		}
		return err
	})
}
