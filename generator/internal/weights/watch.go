package weights

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// Watch detects writes to the mapped files of a checkpoint while their tensors are in
// use. It looks at open descriptors, never at paths, so replacing a file by a rename
// is no change. If a size or a time differs, the checksums of sampled pages decide: a
// mere touch is no change, and a write that misses every sampled page goes unnoticed.
//
// Goroutines may share a Watch. Its methods read files, so the engine's thread must
// not call them.
type Watch struct {
	Interval time.Duration // between two looks; 1 s by default
	Limit    time.Duration // the longest that Rest waits; 10 min by default

	mu       sync.Mutex
	files    []*samples
	recorded bool          // the sums of all files have been computed
	summed   time.Time     // time of the last comparison of all sums
	changed  error         // the first change that was found; never reset
	found    chan struct{} // closed when changed is set
}

// Watch returns a Watch of the mapped files, or nil if none is mapped. Its methods
// must not be called after [Checkpoint.Close].
func (c *Checkpoint) Watch() *Watch { return Watching(c) }

// Watching is [Checkpoint.Watch] for several checkpoints.
func Watching(checkpoints ...*Checkpoint) *Watch {
	w := &Watch{Interval: time.Second, Limit: 10 * time.Minute, found: make(chan struct{})}
	total := 0
	var all []*file
	for _, c := range checkpoints {
		all = append(all, c.files...)
	}
	for _, f := range all {
		total += len(f.data)
	}
	for _, f := range all {
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

// Run records the checksums and then looks at the files once an interval until stop
// is closed. If a file no longer is what Open checked, Run returns ErrChanged with the
// file's name, and Verify does so from then on. Run calls touched with the name of a
// file that was written to or touched while its sampled pages stayed the same.
func (w *Watch) Run(stop <-chan struct{}, touched func(file string)) error {
	next := time.NewTicker(w.Interval)
	defer next.Stop()
	for {
		if err := w.look(false, touched); err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-w.found: // Verify found a change; look returns it
		case <-stop:
			return nil
		}
	}
}

// Verify looks at the files at once. It compares checksums even if no time has
// changed, but at most once an interval. The error is ErrChanged.
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

// compare records the sums on the first call and compares on each later one.
func (w *Watch) compare(force bool, touched func(string)) error {
	if !w.recorded {
		for _, f := range w.files {
			if err := f.record(); err != nil {
				return err
			}
		}
		w.recorded, w.summed = true, time.Now()
		return nil
	}
	force = force && time.Since(w.summed) > w.Interval
	for _, f := range w.files {
		wasTouched, err := f.look(force)
		if err != nil {
			return err
		}
		if wasTouched {
			touched(f.name)
		}
	}
	if force {
		w.summed = time.Now()
	}
	return nil
}

// Rest returns when no file has changed for two intervals, so that the writer is
// probably done. It returns after Limit or at the end of ctx at the latest. It calls
// waiting once an interval.
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

// stamps returns the stamp of each file, zero for a file that fails to stat.
func (w *Watch) stamps() []stamp {
	all := make([]stamp, len(w.files))
	for i, f := range w.files {
		if info, err := f.mapped.Stat(); err == nil {
			all[i] = stampOf(info)
		}
	}
	return all
}
