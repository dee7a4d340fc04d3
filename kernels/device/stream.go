package device

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// hostStream is a goroutine that runs a queue of work.
type hostStream struct {
	h         *Host
	isDefault bool // stands for CUDA's default stream, which no pass may use

	// Used by the caller's goroutine.
	capturing   bool
	thread      int  // began the capture and must end it
	invalidated bool // guarded by h.mu, because any thread may invalidate
	nodes       []Op
	destroyed   bool

	mu     sync.Mutex
	change sync.Cond // queue grew, or closing
	queue  []work
	spare  []work
	closed bool
	done   chan struct{}
}

// work is one entry of a queue: an op, a graph, an event to complete, or an event to
// wait for.
type work struct {
	op     Op
	exec   *hostExec
	record *hostEvent
	wait   *hostEvent
	mark   uint64 // number of the record, for record and wait
}

// NewStream makes a stream.
func (h *Host) NewStream() (Stream, error) { return h.newStream(false) }

// DefaultStream makes a stream that stands for CUDA's default stream. A pass that
// launches on it cannot be captured, and the readiness detector reports it.
func (h *Host) DefaultStream() (Stream, error) { return h.newStream(true) }

func (h *Host) newStream(isDefault bool) (Stream, error) {
	if err := h.enter(Call{Kind: CallNew}); err != nil {
		return nil, err
	}
	s := &hostStream{h: h, isDefault: isDefault, done: make(chan struct{})}
	s.change.L = &s.mu
	h.count(func(l *Live) { l.Streams++ })
	go s.loop()
	return s, nil
}

func (h *Host) count(fn func(*Live)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn(&h.live)
}

func (s *hostStream) loop() {
	defer close(s.done)
	debug.SetPanicOnFault(true) // of this goroutine
	for {
		queue, ok := s.take()
		if !ok {
			return
		}
		for i := range queue {
			s.do(&queue[i])
			queue[i] = work{}
		}
	}
}

// take waits for work and takes all of it. It returns false when the stream is closed
// and its queue is empty.
func (s *hostStream) take() ([]work, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.change.Wait()
	}
	queue := s.queue
	s.queue, s.spare = s.spare[:0], queue
	return queue, len(queue) > 0
}

func (s *hostStream) do(w *work) {
	defer s.h.loseOnFault()
	if s.h.opts.Delay != nil {
		time.Sleep(s.h.opts.Delay())
	}
	switch {
	case w.op != nil:
		if !s.h.abandoned() {
			w.op.Host(s.h)
		}
	case w.exec != nil:
		w.exec.run()
	case w.record != nil:
		w.record.complete(w.mark)
		// The waiting goroutine delivers tokens. On a machine with few processors it
		// must run before the next step occupies this one.
		runtime.Gosched()
	case w.wait != nil:
		w.wait.await(w.mark)
	}
}

func (s *hostStream) enqueue(w work) {
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	s.change.Signal()
}

func (s *hostStream) enter(c Call) error {
	if s.destroyed {
		return fmt.Errorf("%w: stream", ErrDestroyed)
	}
	c.Default = s.isDefault
	return s.h.enter(c)
}

// Launch enqueues or records op.
func (s *hostStream) Launch(op Op) error {
	if err := s.enter(Call{Kind: CallLaunch, Op: op}); err != nil {
		return fmt.Errorf("%s: %w", op.Kernel(), err)
	}
	if err := op.Check(); err != nil {
		return fmt.Errorf("%s: %w", op.Kernel(), err)
	}
	if s.capturing {
		s.nodes = append(s.nodes, op)
		return nil
	}
	s.enqueue(work{op: op})
	return nil
}

// Replay enqueues a graph as one entry.
func (s *hostStream) Replay(x Exec) error {
	if err := s.enter(Call{Kind: CallReplay}); err != nil {
		return err
	}
	e, err := s.exec(x)
	if err != nil {
		return err
	}
	e.launched()
	s.enqueue(work{exec: e})
	return nil
}

// Upload only checks the exec on the host.
func (s *hostStream) Upload(x Exec) error {
	if err := s.enter(Call{Kind: CallUpload}); err != nil {
		return err
	}
	_, err := s.exec(x)
	return err
}

// exec returns x as the host's type, or an error if the stream must not use it now.
func (s *hostStream) exec(x Exec) (*hostExec, error) {
	e, ok := x.(*hostExec)
	switch {
	case !ok || e.h != s.h:
		return nil, fmt.Errorf("%w: the graph belongs to another device", ErrBadBuffer)
	case s.capturing:
		return nil, fmt.Errorf("%w: replay in a capture", ErrCapture)
	case e.isDestroyed():
		return nil, fmt.Errorf("%w: graph", ErrDestroyed)
	}
	return e, nil
}

// Synchronize waits until the queue is done.
func (s *hostStream) Synchronize() error {
	if err := s.enter(Call{Kind: CallSynchronize}); err != nil {
		return err
	}
	if s.capturing {
		s.h.invalidate(s)
		return fmt.Errorf("%w: synchronise in a capture", ErrCapture)
	}
	e := newHostEvent(s.h)
	s.enqueue(work{record: e, mark: e.next()})
	e.await(1)
	return nil
}

// Destroy ends the stream when its queue is done.
func (s *hostStream) Destroy() error {
	if s.destroyed {
		return fmt.Errorf("%w: stream", ErrDestroyed)
	}
	err := s.enter(Call{Kind: CallDestroy})
	s.destroyed = true
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.change.Signal()
	<-s.done
	s.h.count(func(l *Live) { l.Streams-- })
	return err
}

// Record enqueues the completion of e.
func (s *hostStream) Record(e Event) error {
	if err := s.enter(Call{Kind: CallRecord}); err != nil {
		return err
	}
	if s.capturing {
		return fmt.Errorf("%w: event in a capture", ErrCapture)
	}
	ev := e.(*hostEvent)
	s.enqueue(work{record: ev, mark: ev.next()})
	return nil
}

// Wait makes later work wait for e's last Record.
func (s *hostStream) Wait(e Event) error {
	if err := s.enter(Call{Kind: CallWait}); err != nil {
		return err
	}
	if s.capturing {
		return fmt.Errorf("%w: event in a capture", ErrCapture)
	}
	ev := e.(*hostEvent)
	s.enqueue(work{wait: ev, mark: ev.last()})
	return nil
}

// hostEvent numbers its records. It has completed when the last one has.
type hostEvent struct {
	h        *Host
	mu       sync.Mutex
	change   sync.Cond
	recorded uint64 // number of the last record
	reached  uint64 // number of the last completed record
}

func newHostEvent(h *Host) *hostEvent {
	e := &hostEvent{h: h}
	e.change.L = &e.mu
	return e
}

// NewEvent makes an event.
func (h *Host) NewEvent() (Event, error) {
	if err := h.enter(Call{Kind: CallNew}); err != nil {
		return nil, err
	}
	h.count(func(l *Live) { l.Events++ })
	return newHostEvent(h), nil
}

// next returns the number of a new record.
func (e *hostEvent) next() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded++
	return e.recorded
}

// last returns the number of the last record.
func (e *hostEvent) last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recorded
}

func (e *hostEvent) complete(mark uint64) {
	e.mu.Lock()
	e.reached = max(e.reached, mark)
	e.mu.Unlock()
	e.change.Broadcast()
}

func (e *hostEvent) await(mark uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.reached < mark {
		e.change.Wait()
	}
}

// Done reports whether the last record has completed.
func (e *hostEvent) Done() (bool, error) {
	if err := e.h.enter(Call{Kind: CallQuery}); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reached >= e.recorded, nil
}

// Synchronize waits for the last record.
func (e *hostEvent) Synchronize() error {
	if err := e.h.enter(Call{Kind: CallSynchronize}); err != nil {
		return err
	}
	e.await(e.last())
	return nil
}

// Destroy removes the event from the counts.
func (e *hostEvent) Destroy() error {
	err := e.h.enter(Call{Kind: CallDestroy})
	e.h.count(func(l *Live) { l.Events-- })
	return err
}
