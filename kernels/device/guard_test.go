package device

import (
	"errors"
	"strings"
	"testing"
)

// at is the part of n bytes, counted from the beginning of b, that may lie outside of b.
func at(b Buffer, offset, n int64) Buffer {
	b.offset, b.bytes = b.offset+offset, n
	return b
}

// One byte written past either end of any buffer is found, and named; inside, and
// read, none is.
func TestGuardFindsOverruns(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	const bytes = 100
	for how, take := range map[string]func(g *Guard) (Buffer, error){
		"alloc":  func(g *Guard) (Buffer, error) { return g.Alloc(bytes) },
		"load":   func(g *Guard) (Buffer, error) { return g.Load(make([]byte, bytes)) },
		"pinned": func(g *Guard) (Buffer, error) { b, _, err := g.Pinned(bytes); return b, err },
	} {
		for _, place := range []struct {
			offset int64
			want   string
		}{{0, ""}, {bytes - 1, ""}, {bytes, "0 bytes past its end"}, {bytes + canaryBytes - 1, "4095 bytes past its end"},
			{-1, "0 bytes before its beginning"}, {-canaryBytes, "4095 bytes before its beginning"}} {
			g := NewGuard(h)
			b, err := take(g)
			_, other := g.Alloc(bytes)
			if err != nil || other != nil {
				t.Fatal(err, other)
			}
			h.Bytes(at(b, place.offset, 1))[0] = 7
			for doing, err := range map[string]error{"intact": g.Intact(), "free": g.Free(b)} {
				if found := errors.Is(err, ErrOverrun); found != (place.want != "") || found && !strings.Contains(err.Error(), "of 100 bytes from guard_test.go:") || found && !strings.Contains(err.Error(), place.want) {
					t.Errorf("%s, %s, a write at %d: %v, wants %q", how, doing, place.offset, err, place.want)
				}
			}
			if err := g.Intact(); err != nil {
				t.Errorf("after the buffer was freed: %v", err)
			}
		}
	}
}

// What a guard gives out is what the device gives out, but for the canaries.
func TestGuardedBuffers(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	g := NewGuard(h)
	a, _ := g.Alloc(8)
	l, _ := g.Load([]byte{1, 2, 3})
	p, m, _ := g.Pinned(4)
	m.Bytes()[3] = 9
	got := make([]byte, 3)
	if err := g.Read(got, l); err != nil || got[2] != 3 || h.Int32(a)[1] != 0 || h.Bytes(p)[3] != 9 || len(m.Bytes()) != 4 || !g.Owns(a) {
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
