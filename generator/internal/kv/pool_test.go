package kv

import "testing"

func TestPagesAreCountedByReference(t *testing.T) {
	p := New(3, 4)
	taken, _ := p.Take(2)
	p.Retain(taken[0])
	p.Release(taken[0])
	if p.Free() != 1 {
		t.Errorf("%d pages free while one is held once and one twice, wants 1", p.Free())
	}
	p.Release(taken[0])
	p.Release(taken[1])
	if _, ok := p.Take(4); ok || p.Free() != 3 {
		t.Errorf("took 4 pages of 3, %d free", p.Free())
	}
	for _, page := range []int32{0, 4, taken[0]} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("page %d, which is not held, was released", page)
				}
			}()
			p.Release(page)
		}()
	}
}

// References and reservations are changes of the pool, too. The model test makes them together with others.
func TestVersionCountsReferences(t *testing.T) {
	p := New(3, 16)
	p.AddPlaces(2)
	p.Reserve(1)
	pages, _ := p.Take(1)
	changes := []func(){func() { p.Retain(pages[0]) }, func() { p.Release(pages[0]) }, func() { p.Unreserve(1) }}
	for i, change := range changes {
		before := p.Version()
		if change(); p.Version() == before {
			t.Errorf("change %d leaves the version at %d", i, before)
		}
	}
}
