package engine

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// nanoPage is the size in bytes of a KV page of nano, and nanoPool is a pool so small that its pages move.
const (
	nanoPage = 64 * 4
	nanoPool = 17
)

// tiered returns options of nano with a host tier of that many slabs of five pages.
func tiered(slabs int64) Options {
	o := nano()
	o.Pages, o.HostCache, o.slabPages = nanoPool, 5*slabs*nanoPage, 5
	return o
}

// pinning is a device whose calls of Pinned, once armed, each take a permit.
type pinning struct {
	device.Device
	armed  atomic.Bool
	calls  atomic.Int32
	permit chan struct{} // closed: no call waits
}

func (p *pinning) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	if p.armed.Load() {
		p.calls.Add(1)
		<-p.permit
	}
	return p.Device.Pinned(bytes)
}

// pinned returns an engine that runs and whose slabs each wait for a permit.
func pinned(t *testing.T, o Options) (*testEngine, *pinning) {
	t.Helper()
	p := &pinning{permit: make(chan struct{})}
	b := built(t, device.HostOptions{}, o, func(d device.Device) device.Device {
		p.Device = d
		return p
	})
	p.armed.Store(true)
	b.run()
	return b, p
}

// eventually waits until ok returns true.
func (b *testEngine) eventually(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("still waiting for: %s; %+v", what, b.Stats().KV)
		}
	}
}

// No memory is pinned before PinAfter is closed; requests are served meanwhile, and then beside the pinning.
func TestPinningWaitsForTheStart(t *testing.T) {
	after := make(chan struct{})
	o := tiered(4)
	o.PinAfter = after
	b, p := pinned(t, o)
	for range 3 {
		b.complete(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4})
	}
	time.Sleep(5 * time.Millisecond) // a goroutine that does not wait has begun by now
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d slabs were begun before PinAfter was closed", n)
	}
	close(after)
	for want := range 4 {
		b.eventually("a slab", func() bool { return int(p.calls.Load()) == want+1 && b.Stats().KV.HostPages == 5*want })
		b.complete(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4}) // while Pinned runs
		p.permit <- struct{}{}
	}
	b.eventually("the whole tier", func() bool { return b.Stats().KV.HostPages == 20 })
	if err := b.finish(); err != nil {
		t.Error(err)
	}

	o.PinAfter = make(chan struct{}) // never closed
	b, p = pinned(t, o)
	if err := b.finish(); err != nil || p.calls.Load() > 0 {
		t.Errorf("a stop before the pinning: %v, %d slabs", err, p.calls.Load())
	}
}

// A stop in the middle of the pinning waits for the slab that is being made, and for no other.
func TestStopWhilePinning(t *testing.T) {
	b, p := pinned(t, tiered(1000))
	p.permit <- struct{}{}
	p.permit <- struct{}{}
	b.eventually("the third slab", func() bool { return p.calls.Load() == 3 })
	b.Stop()
	<-b.host.stop
	close(p.permit)
	if err := b.wait(); err != nil || p.calls.Load() != 3 {
		t.Errorf("%v after %d slabs, wants 3", err, p.calls.Load())
	}
	b.returned()
}

// A refused slab leaves a smaller tier, which works, and one line for the log.
func TestRefusedSlabLeavesASmallerTier(t *testing.T) {
	probe := built(t, device.HostOptions{}, tiered(0), nil)
	limit := probe.h.Live().Bytes + 12*nanoPage // two slabs of five pages
	probe.run()
	if err := probe.finish(); err != nil {
		t.Fatal(err)
	}
	a := ask(t, seeded(t), 6, 40, 20)
	var mu sync.Mutex
	var lines []string
	o := tiered(10)
	o.NoRoller = true
	o.Warn = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}
	b := built(t, device.HostOptions{Limit: limit}, o, nil)
	b.run()
	b.eventually("the refusal", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(lines) > 0
	})
	b.eventually("two slabs", func() bool { return b.Stats().KV.HostPages == 10 })
	for range 3 {
		a.atOnce(t, b)
	}
	kv := b.Stats().KV
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	if kv.HostPages != 10 || kv.Stored == 0 {
		t.Errorf("a tier of %d pages, %d stored; wants 10, some", kv.HostPages, kv.Stored)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], device.ErrOutOfMemory.Error()) ||
		!strings.Contains(lines[0], "--host-cache") {
		t.Errorf("the log gets %q", lines)
	}
}

// An idle engine ends if the pinning finds the device lost, and gives up no request and no account.
func TestEngineEndsWhenThePinningLosesTheDevice(t *testing.T) {
	after := make(chan struct{})
	o := tiered(3)
	o.PinAfter = after
	var lines atomic.Int32
	o.Warn = func(string) { lines.Add(1) }
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	b.complete(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4})
	b.h.Trace(func(c device.Call) {
		if c.Kind == device.CallAlloc {
			b.h.Faults().FailAt(1, true)
		}
	})
	close(after)
	if err := b.wait(); !errors.Is(err, ErrDevice) || !errors.Is(err, device.ErrSticky) {
		t.Errorf("Run returned %v", err)
	}
	if kv := b.Stats().KV; kv.Used != 0 || lines.Load() != 0 {
		t.Errorf("%d pages in use, %d lines", kv.Used, lines.Load())
	}
}
