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
