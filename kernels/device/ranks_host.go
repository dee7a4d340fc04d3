package device

import (
	"sync"
	"sync/atomic"
	"time"
)

// simulation connects hosts that stand for the ranks of one device.
type simulation struct {
	hosts  []*Host
	mu     sync.Mutex
	change sync.Cond // a rank raised a flag, or the device is lost
	lost   atomic.Bool
}

// ExchangeFault is a fault in a simulated rank's exchanges, for tests.
type ExchangeFault uint8

// The faults.
const (
	NoExchangeFault ExchangeFault = iota
	MissingFlag                   // the rank's part arrives and its flag is not raised
	WrongEpoch                    // the flag is raised to an exchange long ago
	StalePeer                     // the part goes to memory that nobody reads
)

// NewHostRanks makes a device of n simulated ranks. Each is a host with options of its own: its delays and its
// faults. patience is as in [RanksOptions]; 0 is a minute, since simulated ranks share the machine's processors with
// everything else. Close ends the workers of all.
func NewHostRanks(n int, patience time.Duration, options func(rank int) HostOptions) (*HostRanks, error) {
	if patience == 0 {
		patience = time.Minute
	}
	s := &simulation{}
	s.change.L = &s.mu
	var each []Device
	for rank := range n {
		h := NewHost(options(rank))
		h.rank, h.simulation = rank, s
		s.hosts, each = append(s.hosts, h), append(each, h)
	}
	r, err := NewRanks(each, RanksOptions{Patience: patience, Lost: s.lose})
	if err != nil {
		closeHosts(s.hosts)
		return nil, err
	}
	return &HostRanks{Ranks: r, hosts: s.hosts}, nil
}

// HostRanks is a device of simulated ranks.
type HostRanks struct {
	*Ranks
	hosts []*Host
}

// Hosts returns the ranks.
func (r *HostRanks) Hosts() []*Host { return r.hosts }

// Close ends the workers of all ranks. All streams must have been destroyed, or the device is lost.
func (r *HostRanks) Close() { closeHosts(r.hosts) }

func closeHosts(hosts []*Host) {
	for _, h := range hosts {
		h.Close()
	}
}

// lose ends all waits.
func (s *simulation) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost.Store(true)
	s.change.Broadcast()
}

// abandoned reports whether h is a rank of a device that is lost. It then skips its work: other ranks no longer say
// when they have read what it would write.
func (h *Host) abandoned() bool { return h.simulation != nil && h.simulation.lost.Load() }

// Rank returns which rank of its device h is; 0 if it is no rank.
func (h *Host) Rank() int { return h.rank }

// Peers returns the ranks of h's device by their numbers, h among them; nil if h is no rank.
func (h *Host) Peers() []*Host {
	if h.simulation == nil {
		return nil
	}
	return h.simulation.hosts
}

// ExchangeFault returns the fault that [Faults.PlantExchange] has planted.
func (h *Host) ExchangeFault() ExchangeFault {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	return h.faults.exchange
}

// PlantExchange plants a fault in the exchanges of a simulated rank from now on.
func (f *Faults) PlantExchange(fault ExchangeFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchange = fault
}

// Signal wakes the ranks that wait for what h has written for them.
func (h *Host) Signal() {
	h.simulation.mu.Lock()
	defer h.simulation.mu.Unlock()
	h.simulation.change.Broadcast()
}

// Await returns true when arrived does, which is asked again after each Signal of a rank; false if the device is lost.
func (h *Host) Await(arrived func() bool) bool {
	s := h.simulation
	s.mu.Lock()
	defer s.mu.Unlock()
	for !arrived() {
		if s.lost.Load() {
			return false
		}
		s.change.Wait()
	}
	return true
}

// Share makes the handle of pinned memory of another rank.
func (h *Host) Share(m *Mapped) (Buffer, error) {
	if err := h.enter(Call{Kind: CallAlloc}); err != nil {
		return Buffer{}, err
	}
	return h.register(int64(len(m.data)), func() ([]byte, bool, error) { return m.data, false, nil })
}

// WaitFor reports whether all work that was enqueued before has completed after d at most.
func (s *hostStream) WaitFor(d time.Duration) bool {
	e := newHostEvent(s.h)
	s.enqueue(work{record: e, mark: e.next()})
	return e.WaitFor(d)
}

// Failed returns the error that every call on the host returns, or nil.
func (s *hostStream) Failed() error { return s.h.faults.lost() }

// Failed returns the error that every call on the host returns, or nil.
func (e *hostEvent) Failed() error { return e.h.faults.lost() }

// WaitFor reports whether the last record has completed after d at most.
func (e *hostEvent) WaitFor(d time.Duration) bool {
	over := false
	timer := time.AfterFunc(d, func() {
		e.mu.Lock()
		over = true
		e.mu.Unlock()
		e.change.Broadcast()
	})
	defer timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.reached < e.recorded && !over {
		e.change.Wait()
	}
	return e.reached >= e.recorded
}
