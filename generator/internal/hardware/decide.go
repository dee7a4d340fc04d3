package hardware

import (
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/kernels/device"
)

// decide settles o.Device, auto or cuda, after a look for a GPU that gave err. Device cuda requires a GPU, and the error
// says what is missing.
func decide(o *config.Options, log zerolog.Logger, err error) error {
	switch {
	case err == nil:
		o.Device = "cuda"
		return nil
	case errors.Is(err, config.ErrSignal):
		return err
	case o.Device == "cuda" && errors.Is(err, device.ErrBusy): // temporary
		return fmt.Errorf("--device cuda: %w", err)
	case o.Device == "cuda":
		return config.Refuse(config.ErrConfig, "--device cuda: %w: correct that, or use --device host", err)
	}
	o.Device = "host"
	log.Info().Str("device", o.Device).Str("reason", err.Error()).Msg("--device auto serves on the host")
	return nil
}
