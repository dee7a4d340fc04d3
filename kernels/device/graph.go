package device

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostGraph is a recorded sequence of ops, one node each.
type hostGraph struct {
	h         *Host
	nodes     []Op
	destroyed bool
}

// hostExec replays its nodes.
type hostExec struct {
	h     *Host
	nodes []Op
	bytes int64

	// Guarded by h.mu.
	pending   int // replays that are enqueued and not done
	destroyed bool
}

// BeginCapture begins to record ops. The same thread must end the capture.
func (s *hostStream) BeginCapture() error {
	if err := s.enter(Call{Kind: CallBeginCapture}); err != nil {
		return err
	}
	if s.capturing || s.isDefault {
		return fmt.Errorf("%w: the stream captures already, or is the default stream", ErrCapture)
	}
	s.capturing, s.nodes, s.thread = true, nil, unix.Gettid()
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.invalidated = false
	s.h.captures[s] = struct{}{}
	return nil
}

// EndCapture makes a graph of the recorded ops.
func (s *hostStream) EndCapture() (Graph, error) {
	if !s.capturing {
		return nil, fmt.Errorf("%w: there is no capture to end", ErrCapture)
	}
	err := s.enter(Call{Kind: CallEndCapture})
	if err == nil && s.thread != unix.Gettid() {
		err = fmt.Errorf("%w: ended on another thread than it began on", ErrCapture)
	}
	time.Sleep(s.h.opts.CaptureDelay)
	s.capturing = false
	nodes := s.nodes
	s.nodes = nil
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	delete(s.h.captures, s)
	switch {
	case err != nil:
		return nil, err
	case s.invalidated:
		return nil, ErrInvalidated
	case len(nodes) == 0:
		return nil, ErrEmptyCapture
	}
	s.h.live.Graphs++
	return &hostGraph{h: s.h, nodes: nodes}, nil
}

// invalidate makes the capture of s fail.
func (h *Host) invalidate(s *hostStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.invalidated = true
}

// Synchronize invalidates every capture under way on any thread, like CUDA's
// device-wide synchronise. Only tests of captures call it, so it does not wait.
func (h *Host) Synchronize() error {
	if err := h.enter(Call{Kind: CallDeviceSynchronize}); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.captures {
		s.invalidated = true
	}
	return nil
}

// Nodes returns the number of ops.
func (g *hostGraph) Nodes() int { return len(g.nodes) }

// Instantiate makes an exec and counts its bytes against the device's limit.
func (g *hostGraph) Instantiate() (Exec, error) {
	if err := g.h.enter(Call{Kind: CallInstantiate}); err != nil {
		return nil, err
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if g.destroyed {
		return nil, fmt.Errorf("%w: graph", ErrDestroyed)
	}
	bytes := g.h.opts.GraphBytes
	if bytes == 0 {
		bytes = nodeBytes(g.nodes)
	}
	if err := g.h.take(bytes); err != nil {
		return nil, err
	}
	g.h.live.Execs++
	return &hostExec{h: g.h, nodes: g.nodes, bytes: bytes}, nil
}

// nodeBytes returns the memory of recorded ops.
func nodeBytes(nodes []Op) (bytes int64) {
	for _, op := range nodes {
		bytes += int64(reflect.TypeOf(op).Size() + unsafe.Sizeof(op))
	}
	return bytes
}

// Destroy frees the graph; its execs stay.
func (g *hostGraph) Destroy() error {
	err := g.h.enter(Call{Kind: CallDestroy})
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if g.destroyed {
		return fmt.Errorf("%w: graph", ErrDestroyed)
	}
	g.destroyed = true
	g.h.live.Graphs--
	return err
}

// Bytes returns the size of the exec.
func (e *hostExec) Bytes() int64 { return e.bytes }

// Destroy frees the exec, which must have no replay pending.
func (e *hostExec) Destroy() error {
	err := e.h.enter(Call{Kind: CallDestroy})
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	if e.destroyed || e.pending > 0 {
		return fmt.Errorf("%w: graph destroyed twice, or with %d replays pending", ErrDestroyed, e.pending)
	}
	e.destroyed = true
	e.h.live.Execs--
	e.h.live.Bytes -= e.bytes
	return err
}

func (e *hostExec) isDestroyed() bool {
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	return e.destroyed
}

func (e *hostExec) launched() {
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	e.pending++
}

// run replays the nodes in order.
func (e *hostExec) run() {
	for _, op := range e.nodes {
		if e.h.abandoned() {
			break
		}
		op.Host(e.h)
	}
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	e.pending--
}
