package weights

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// Watch notices when files of a checkpoint are written to while tensors are read
// where the files are mapped. It looks at open descriptors, never at paths: a file
// that is replaced by a rename is still there, and nothing has changed. A changed
// size or time is confirmed by the checksums of sampled pages, so that a touch ends
// nothing, and a write that changes no sampled page goes unnoticed.
//
// Its methods may be called by many goroutines. They read files: the engine's thread
// calls none of them.
type Watch struct {
	Interval time.Duration // between two looks; a second at first
	Limit    time.Duration // of Rest; ten minutes at first

	mu      sync.Mutex
	files   []*samples
	taken   bool
	summed  time.Time     // when sums of all files were compared last
	changed error         // the first that was found; it stays
	found   chan struct{} // closed then
}

// Watch returns what watches the files, or nil where none is mapped. Close comes
// after its last call.
func (c *Checkpoint) Watch() *Watch {
	w := &Watch{Interval: time.Second, Limit: 10 * time.Minute, found: make(chan struct{})}
	total := 0
	for _, f := range c.files {
		total += len(f.data)
	}
	for _, f := range c.files {
		if f.mapped != nil {
			share := int(maxSamples * (float64(len(f.data)) / float64(total)))
			w.files = append(w.files, &samples{file: f, seed: maphash.MakeSeed(), offsets: sampleOffsets(f, share)})
		}
	}
	if len(w.files) == 0 {
		return nil
	}
	return w
}

// Run takes the checksums and then looks at the files until stop is closed. It
// returns ErrChanged, and which file, once one is not what Open checked; so does
// Verify then. touched hears of a file that was written to or touched, and is as it was.
func (w *Watch) Run(stop <-chan struct{}, touched func(file string)) error {
	next := time.NewTicker(w.Interval)
	defer next.Stop()
	for {
		if err := w.look(false, touched); err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-w.found: // by Verify
		case <-stop:
			return nil
		}
	}
}

// Verify looks at once, and compares checksums even where no time has changed,
// though no more often than once an interval. The error is ErrChanged.
func (w *Watch) Verify() error { return w.look(true, func(string) {}) }

func (w *Watch) look(force bool, touched func(string)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		return w.changed
	}
	if err := w.compare(force, touched); err != nil {
		w.changed = err
		close(w.found)
	}
	return w.changed
}

// compare takes the sums at the first call and compares at each later one.
func (w *Watch) compare(force bool, touched func(string)) error {
	if !w.taken {
		for _, f := range w.files {
			if err := f.take(); err != nil {
				return err
			}
		}
		w.taken, w.summed = true, time.Now()
		return nil
	}
	force = force && time.Since(w.summed) > w.Interval
	for _, f := range w.files {
		is, err := f.look(force)
		if err != nil {
			return err
		}
		if is {
			touched(f.name)
		}
	}
	if force {
		w.summed = time.Now()
	}
	return nil
}

// Rest returns when no file has changed for two intervals: whoever writes them is
// done. It waits for Limit at most, and not beyond the end of ctx. waiting is called
// once an interval.
func (w *Watch) Rest(ctx context.Context, waiting func()) {
	ctx, stop := context.WithTimeout(ctx, w.Limit)
	defer stop()
	next := time.NewTicker(w.Interval)
	defer next.Stop()
	last, quiet := w.stamps(), 0
	for quiet < 2 {
		select {
		case <-next.C:
			waiting()
		case <-ctx.Done():
			return
		}
		now := w.stamps()
		quiet++
		for i := range now {
			if now[i] != last[i] {
				quiet = 0
			}
		}
		last = now
	}
}

// stamps are those of all files; a file that cannot be looked at has none.
func (w *Watch) stamps() []stamp {
	all := make([]stamp, len(w.files))
	for i, f := range w.files {
		if info, err := f.mapped.Stat(); err == nil {
			all[i] = stampOf(info)
		}
	}
	return all
}
