//go:build !cuda

package hardware

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
)

// Choose replaces o.Device auto by host or cuda. For a GPU it becomes the program with the
// cuda device, with the same process id, after flush has written the log. Device cuda requires
// a GPU, and the error says what is missing. A signal from stop ends Choose with
// [config.ErrSignal].
func Choose(stop <-chan os.Signal, log zerolog.Logger, flush func(), o *config.Options) error {
	s := thisSystem
	s.flush = flush
	return s.choose(stop, log, o)
}

func (s system) choose(stop <-chan os.Signal, log zerolog.Logger, o *config.Options) error {
	if o.Device == "host" {
		return nil
	}
	return decide(o, log, s.becomeCuda(stop))
}

// becomeCuda becomes the cuda program. It returns only an error that says why it cannot.
func (s system) becomeCuda(stop <-chan os.Signal) error {
	p, err := s.find()
	if err != nil {
		return err
	}
	if err := p.try(stop, "version"); err != nil {
		return err
	}
	s.flush()
	return fmt.Errorf("%s: %w", p.path, s.exec(p.path, append([]string{p.path}, os.Args[1:]...), p.env))
}

// DriverLibrary returns the path of the driver's library, or an empty string.
func DriverLibrary() string { return thisSystem.driver() }

// Open opens the chosen device.
func Open(o config.Options) (Hardware, error) {
	if err := claim(); err != nil {
		return Hardware{}, err
	}
	return hostFor(o)
}

// FindCUDA returns an error if the cuda program is not beside this one. TryCUDA returns an
// error if it does not start, or the driver refuses it.
func FindCUDA() error {
	_, err := thisSystem.findBeside()
	return err
}

// TryCUDA returns an error if the cuda program does not start, or the driver refuses it.
func TryCUDA() error {
	p, err := thisSystem.find()
	if err == nil {
		err = p.try(nil, TryName)
	}
	return err
}
