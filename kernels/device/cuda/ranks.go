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

// Link is how GPUs reach each other in exchanges.
type Link uint8

// The links.
const (
	AnyLink  Link = iota // PeerLink if they can, else HostLink
	PeerLink             // they address each other's memory
	HostLink             // through pinned memory of the host, slower
)

// NewRanks makes one device of several fresh GPUs. wrap returns the device of a rank as tests change it; nil: as it is.
// The error is [ErrNoPeers] if two of them cannot address each other's memory and the link is PeerLink.
func NewRanks(gpus []*Device, link Link, wrap func(*Device) device.Device) (*device.Ranks, error) {
	inbox := device.PinnedInbox
	if link != HostLink {
		switch err := allowPeers(gpus); {
		case err == nil:
			inbox = device.PeerInbox
		case link == PeerLink || !errors.Is(err, ErrNoPeers):
			return nil, err
		}
	}
	var ranks []device.Device
	for rank, d := range gpus {
		d.rank, d.peers = rank, gpus
		if wrap != nil {
			ranks = append(ranks, wrap(d))
		} else {
			ranks = append(ranks, d)
		}
	}
	return device.NewRanks(ranks, device.RanksOptions{Patience: rankPatience, Inbox: inbox})
}

// allowPeers lets kernels of each GPU address the memory of all others. If some two cannot, nothing has changed.
func allowPeers(gpus []*Device) error {
	for _, call := range []func(d, peer *Device) error{(*Device).canPeer, (*Device).allowPeer} {
		for _, d := range gpus {
			for _, peer := range gpus {
				if peer == d {
					continue
				}
				if err := call(d, peer); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// canPeer returns ErrNoPeers if d cannot address the peer's memory.
func (d *Device) canPeer(peer *Device) error {
	can, err := d.gpu.CanAccessPeer(peer.gpu)
	if err != nil {
		return d.wrapped("peer access", err)
	}
	if can == 0 {
		return fmt.Errorf("%w: GPU %d and GPU %d", ErrNoPeers, int(d.gpu), int(peer.gpu))
	}
	return nil
}

// allowPeer lets kernels of d address the peer's memory, present and future.
func (d *Device) allowPeer(peer *Device) error {
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

// WaitFor reports whether the last record has been written after limit at most. It polls, as Synchronize does.
func (e *event) WaitFor(limit time.Duration) bool { return e.await(limit) }

// Failed returns the error that stopped the stream of the last record, or nil.
func (e *event) Failed() error {
	if e.stream == nil {
		return nil
	}
	return e.stream.Failed()
}
