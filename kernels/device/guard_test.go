package device

import (
	"errors"
	"strings"
	"testing"
)

// at returns n bytes at an offset from the beginning of b. They may lie outside of b.
func at(b Buffer, offset, n int64) Buffer {
	b.offset, b.bytes = b.offset+offset, n
	return b
}

// One byte written past either end of a buffer is reported with the buffer's origin. A
// byte written inside of it is not.
func TestGuardFindsOverruns(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	const bytes = 100
	for how, take := range map[string]func(g *Guard) (Buffer, error){
		"alloc":     func(g *Guard) (Buffer, error) { return g.Alloc(bytes) },
		"uncleared": func(g *Guard) (Buffer, error) { return g.Uncleared(bytes) },
		"load":      func(g *Guard) (Buffer, error) { return g.Load(make([]byte, bytes)) },
		"pinned":    func(g *Guard) (Buffer, error) { b, _, err := g.Pinned(bytes); return b, err },
	} {
		for _, place := range []struct {
			offset int64
			want   string
		}{{0, ""}, {bytes - 1, ""},
			{bytes, "0 bytes past its end"}, {bytes + canaryBytes - 1, "4095 bytes past its end"},
			{-1, "0 bytes before its beginning"}, {-canaryBytes, "4095 bytes before its beginning"}} {
			g := NewGuard(h)
			b, err := take(g)
			_, other := g.Alloc(bytes)
			if err != nil || other != nil {
				t.Fatal(err, other)
			}
			h.Bytes(at(b, place.offset, 1))[0] = 7
			for doing, err := range map[string]error{"intact": g.Intact(), "free": g.Free(b)} {
				found := errors.Is(err, ErrOverrun)
				if found != (place.want != "") ||
					found && !strings.Contains(err.Error(), "of 100 bytes from guard_test.go:") ||
					found && !strings.Contains(err.Error(), place.want) {
					t.Errorf("%s, %s, a write at %d: %v, wants %q", how, doing, place.offset, err, place.want)
				}
			}
			if err := g.Intact(); err != nil {
				t.Errorf("after the buffer was freed: %v", err)
			}
		}
	}
}

// A guarded buffer is used like the device's own.
func TestGuardedBuffers(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	g := NewGuard(h)
	a, _ := g.Alloc(8)
	l, _ := g.Load([]byte{1, 2, 3})
	p, m, _ := g.Pinned(4)
	m.Bytes()[3] = 9
	got := make([]byte, 3)
	err := g.Read(got, l)
	if err != nil || got[2] != 3 || h.Int32(a)[1] != 0 || h.Bytes(p)[3] != 9 || len(m.Bytes()) != 4 || !g.Owns(a) {
		t.Errorf("%v, loaded %v, allocated %v, pinned %v", err, got, h.Bytes(a), h.Bytes(p))
	}
	if _, err := g.Alloc(0); !errors.Is(err, ErrBadBuffer) {
		t.Errorf("0 bytes: %v, wants ErrBadBuffer", err)
	}
	if err := g.Free(a.Slice(0, 4)); !errors.Is(err, ErrBadBuffer) {
		t.Errorf("free of a part: %v, wants ErrBadBuffer", err)
	}
	if err := errors.Join(g.Free(a), g.Free(l), g.Free(p)); err != nil || h.Live() != (Live{}) {
		t.Errorf("%v, left: %+v", err, h.Live())
	}
}

// capable is a device with every capability but a guard's.
type capable struct{ Device }

func (capable) Capabilities() Capabilities {
	return Capabilities{PacksWeights: true, FreeMemory: func() (int64, error) { return 1, nil }}
}

// A guard packs weights as its device does, and alone has canaries to check.
func TestGuardCapabilities(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	if c := h.Capabilities(); c.PacksWeights || c.FreeMemory != nil || c.Intact != nil {
		t.Errorf("of the host: %+v", c)
	}
	if c := NewGuard(h).Capabilities(); c.PacksWeights || c.Intact == nil || c.Intact() != nil {
		t.Errorf("of a guarded host: %+v", c)
	}
	if c := NewGuard(capable{h}).Capabilities(); !c.PacksWeights || c.Intact == nil {
		t.Errorf("of a guarded device: %+v", c)
	}
}
