package device

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// ranksStream is a stream of each rank. Each call is made on all of them, in the order of their ranks, by the caller's
// thread: op by op, or a graph of each, so no rank is ever more than one call ahead of another.
type ranksStream struct {
	r         *Ranks
	each      []Stream
	capturing bool
}

// NewStream makes a stream of each rank.
func (r *Ranks) NewStream() (Stream, error) {
	s := &ranksStream{r: r}
	err := r.all(func(i int) error {
		each, err := r.ranks[i].NewStream()
		if err == nil {
			s.each = append(s.each, each)
		}
		return err
	})
	return s, err
}

// Launch enqueues op on every rank, or records it. A failure in a capture fails only the capture.
func (s *ranksStream) Launch(op Op) error {
	if s.capturing {
		for i, each := range s.each {
			if err := each.Launch(op); err != nil {
				return s.r.failed(fmt.Errorf("rank %d: %w", i, err))
			}
		}
		return nil
	}
	return s.r.all(func(i int) error { return s.each[i].Launch(op) })
}

// exec returns x as the exec of each rank.
func (s *ranksStream) exec(x Exec) (*ranksExec, error) {
	e, ok := x.(*ranksExec)
	switch {
	case !ok || e.r != s.r:
		return nil, fmt.Errorf("%w: the graph belongs to another device", ErrBadBuffer)
	case s.capturing:
		return nil, fmt.Errorf("%w: replay in a capture", ErrCapture)
	}
	return e, nil
}

// Replay enqueues the graph of each rank.
func (s *ranksStream) Replay(x Exec) error {
	e, err := s.exec(x)
	if err != nil {
		return err
	}
	return s.r.all(func(i int) error { return s.each[i].Replay(e.each[i]) })
}

// Upload prepares the exec of each rank. A failure leaves the ranks as they are: nothing runs yet.
func (s *ranksStream) Upload(x Exec) error {
	e, err := s.exec(x)
	if err != nil {
		return err
	}
	return s.r.undoable(func(i int) error { return s.each[i].Upload(e.each[i]) })
}

// undoable makes a call on every rank that changes nothing that the ranks have to agree in.
func (r *Ranks) undoable(call func(rank int) error) error {
	if err := r.lostError(); err != nil {
		return err
	}
	for i := range r.ranks {
		if err := call(i); err != nil {
			return r.failed(fmt.Errorf("rank %d: %w", i, err))
		}
	}
	return nil
}

// Record enqueues the completion of e on every rank.
func (s *ranksStream) Record(e Event) error {
	return s.r.all(func(i int) error { return s.each[i].Record(e.(*ranksEvent).each[i]) })
}

// Wait makes later work of every rank wait for its part of e.
func (s *ranksStream) Wait(e Event) error {
	return s.r.all(func(i int) error { return s.each[i].Wait(e.(*ranksEvent).each[i]) })
}

// Synchronize waits for all ranks. In a capture it fails, and with it the capture of every rank.
func (s *ranksStream) Synchronize() error {
	if s.capturing {
		return s.r.undoable(func(i int) error { return s.each[i].Synchronize() })
	}
	if err := s.r.await(func(i int) waiting { return s.each[i].(waiting) }); err != nil {
		return err
	}
	return s.r.undoable(func(i int) error { return s.each[i].Synchronize() })
}

// BeginCapture begins a capture on every rank. If one refuses, the others end theirs.
func (s *ranksStream) BeginCapture() error {
	if err := s.r.lostError(); err != nil {
		return err
	}
	for i, each := range s.each {
		if err := each.BeginCapture(); err != nil {
			err = s.r.failed(fmt.Errorf("rank %d: %w", i, err))
			return GiveBack(func() error { return err }, func() error { return endCaptures(s.each[:i]) })
		}
	}
	s.capturing = true
	return nil
}

// endCaptures ends captures whose graphs nobody wants. Their errors, such as that nothing was captured, say nothing.
func endCaptures(streams []Stream) (err error) {
	for _, s := range streams {
		g, failed := s.EndCapture()
		if g != nil {
			failed = g.Destroy()
		}
		if errors.Is(failed, ErrSticky) {
			return failed
		}
	}
	return nil
}

// EndCapture ends the capture of every rank. If one fails, there is no graph of any.
func (s *ranksStream) EndCapture() (Graph, error) {
	if !s.capturing {
		return nil, fmt.Errorf("%w: there is no capture to end", ErrCapture)
	}
	s.capturing = false
	g := &ranksGraph{r: s.r}
	var first error
	for i, each := range s.each {
		made, err := each.EndCapture()
		if err != nil {
			if first == nil {
				first = s.r.failed(fmt.Errorf("rank %d: %w", i, err))
			}
			continue
		}
		g.each = append(g.each, made)
	}
	if first != nil {
		return nil, GiveBack(func() error { return first }, g.Destroy)
	}
	return g, nil
}

// Destroy waits for the work of all ranks before it frees the stream of any.
func (s *ranksStream) Destroy() error {
	return GiveBack(s.Synchronize, func() error {
		return s.r.undoable(func(i int) error { return s.each[i].Destroy() })
	})
}

// destroyEach frees what each rank has of a graph, an exec or an event.
func destroyEach[T interface{ Destroy() error }](r *Ranks, each []T) error {
	var releases []func() error
	for _, one := range each {
		releases = append(releases, func() error { return r.failed(one.Destroy()) })
	}
	return GiveBack(releases...)
}

// ranksGraph is a graph of each rank.
type ranksGraph struct {
	r    *Ranks
	each []Graph
}

// Nodes returns the nodes of one rank.
func (g *ranksGraph) Nodes() int { return g.each[0].Nodes() }

// Instantiate makes an exec of each rank's graph, or of none.
func (g *ranksGraph) Instantiate() (Exec, error) {
	x := &ranksExec{r: g.r}
	for i, each := range g.each {
		made, err := each.Instantiate()
		if err != nil {
			err = g.r.failed(fmt.Errorf("rank %d: %w", i, err))
			return nil, GiveBack(func() error { return err }, x.Destroy)
		}
		x.each = append(x.each, made)
	}
	return x, nil
}

// Destroy frees the graph of each rank.
func (g *ranksGraph) Destroy() error { return destroyEach(g.r, g.each) }

// ranksExec is an exec of each rank.
type ranksExec struct {
	r    *Ranks
	each []Exec
}

// Bytes returns the memory of the largest one: memory is planned by rank.
func (x *ranksExec) Bytes() (most int64) {
	for _, each := range x.each {
		most = max(most, each.Bytes())
	}
	return most
}

// Destroy frees the exec of each rank.
func (x *ranksExec) Destroy() error { return destroyEach(x.r, x.each) }

// ranksEvent is an event of each rank. It has completed when all have.
type ranksEvent struct {
	r    *Ranks
	each []Event
}

// NewEvent makes an event of each rank.
func (r *Ranks) NewEvent() (Event, error) {
	e := &ranksEvent{r: r}
	err := r.all(func(i int) error {
		each, err := r.ranks[i].NewEvent()
		if err == nil {
			e.each = append(e.each, each)
		}
		return err
	})
	return e, err
}

// Done reports whether the last Record has completed on all ranks.
func (e *ranksEvent) Done() (bool, error) {
	if err := e.r.lostError(); err != nil {
		return false, err
	}
	all := true
	for i, each := range e.each {
		done, err := each.Done()
		if err != nil {
			return false, e.r.failed(fmt.Errorf("rank %d: %w", i, err))
		}
		all = all && done
	}
	return all, nil
}

// waiting is a rank's stream or event that can be waited for a while. A trace does not see these calls.
type waiting interface {
	// WaitFor reports whether all work, or the last Record, has completed after d at most.
	WaitFor(d time.Duration) bool
	// Failed returns the error that stopped it, or nil.
	Failed() error
}

// Synchronize returns when the last Record has completed on all ranks.
func (e *ranksEvent) Synchronize() error {
	if err := e.r.await(func(i int) waiting { return e.each[i].(waiting) }); err != nil {
		return err
	}
	return e.r.undoable(func(i int) error { return e.each[i].Synchronize() })
}

// await waits for something of each rank. Now and then it looks at all ranks, since each waits in its exchanges for one
// that failed. If for the patience no rank reaches an exchange, the device is lost.
func (r *Ranks) await(of func(rank int) waiting) error {
	if err := r.lostError(); err != nil {
		return err
	}
	seen, stood := r.progress(), time.Duration(0)
	for i := range r.ranks {
		for !of(i).WaitFor(waitInterval) {
			if err := r.undoable(func(rank int) error { return of(rank).Failed() }); err != nil {
				return err
			}
			now := r.progress()
			if stood += waitInterval; now != seen {
				seen, stood = now, 0
			}
			if stood >= r.opts.Patience {
				return r.lose(fmt.Errorf("%w: no exchange within %v", ErrRanks, r.opts.Patience))
			}
		}
	}
	return nil
}

// Destroy frees the event of each rank.
func (e *ranksEvent) Destroy() error { return destroyEach(e.r, e.each) }

// mappedWords returns pinned memory as words, without a trace: no pass reads it.
func mappedWords(m *Mapped) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(m.data))), len(m.data)/4)
}
