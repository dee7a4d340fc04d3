//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"time"

	"reel.internal/reel/kernels/device"
)

// ErrNoPeers means that two GPUs cannot address each other's memory.
var ErrNoPeers = errors.New("cuda: the GPUs cannot address each other's memory")

// rankPatience is how long no rank may reach an exchange while the host waits: far longer than any op takes.
const rankPatience = 500 * time.Millisecond

// NewRanks makes one device of several fresh GPUs. wrap returns the device of a rank as tests change it; nil: as it is.
// The error is [ErrNoPeers] if two of them cannot address each other's memory.
func NewRanks(gpus []*Device, wrap func(*Device) device.Device) (*device.Ranks, error) {
	var ranks []device.Device
	for rank, d := range gpus {
		for _, peer := range gpus {
			if peer == d {
				continue
			}
			if err := d.allowPeer(peer); err != nil {
				return nil, err
			}
		}
		d.rank, d.peers = rank, gpus
		if wrap != nil {
			ranks = append(ranks, wrap(d))
		} else {
			ranks = append(ranks, d)
		}
	}
	return device.NewRanks(ranks, device.RanksOptions{Patience: rankPatience, Inbox: device.PeerInbox})
}

// allowPeer lets kernels of d address the peer's memory, present and future.
func (d *Device) allowPeer(peer *Device) error {
	can, err := d.gpu.CanAccessPeer(peer.gpu)
	if err != nil {
		return d.wrapped("peer access", err)
	}
	if can == 0 {
		return fmt.Errorf("%w: GPU %d and GPU %d", ErrNoPeers, int(d.gpu), int(peer.gpu))
	}
	return d.do(device.CallNew, "peer access", func() error { return peer.context.EnablePeerAccess(0) })
}

// Share makes the handle of pinned memory of another rank.
func (d *Device) Share(m *device.Mapped) (device.Buffer, error) {
	if err := d.enter(device.Call{Kind: device.CallAlloc}); err != nil {
		return device.Buffer{}, err
	}
	data := m.Memory()
	address, err := d.addressOf(data)
	if err != nil {
		return device.Buffer{}, err
	}
	return d.register(allocation{address: address, bytes: int64(len(data)), shared: true}), nil
}

// WaitFor reports whether all work is done, or the stream has failed, after limit at most.
func (s *stream) WaitFor(limit time.Duration) bool {
	for begun := time.Now(); ; {
		if s.stopped() {
			return true
		}
		if time.Since(begun) >= limit {
			return false
		}
	}
}

// Failed returns the error that stopped the stream, or nil.
func (s *stream) Failed() error {
	if err := s.d.lost.Load(); err != nil {
		return *err
	}
	return s.failed()
}

// WaitFor reports whether the last record has been written after limit at most. It spins.
func (e *event) WaitFor(limit time.Duration) bool {
	for begun := time.Now(); ; {
		for range pollsPerClock {
			if e.reached() {
				return true
			}
		}
		if time.Since(begun) >= limit {
			return false
		}
	}
}

// Failed returns the error that stopped the stream of the last record, or nil.
func (e *event) Failed() error {
	if e.stream == nil {
		return nil
	}
	return e.stream.Failed()
}
