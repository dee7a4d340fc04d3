package graphs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/kernels/device"
)

// buriedOp holds its buffer in a nested struct.
type buriedOp struct{ Inner noteOp }

func (buriedOp) Kernel() string        { return "buried" }
func (buriedOp) Check() error          { return nil }
func (o buriedOp) Host(h *device.Host) { o.Inner.Host(h) }

// greedyOp allocates while it runs, like a library without a workspace.
type greedyOp struct{}

func (greedyOp) Kernel() string      { return "greedy" }
func (greedyOp) Check() error        { return nil }
func (greedyOp) Host(h *device.Host) { _, _ = h.Alloc(8) }

// foreignBuffer returns a buffer of another device.
func foreignBuffer(t *testing.T) device.Buffer {
	other := device.NewHost(device.HostOptions{})
	t.Cleanup(other.Close)
	for range 9 { // so that no other device has a buffer of its number
		_, _ = other.Alloc(8)
	}
	foreign, _ := other.Alloc(8)
	return foreign
}

// Each fault planted between the second op and the third is reported with its op.
func TestInspectNamesTheOpAtFault(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	foreign := foreignBuffer(t)
	_, pinned, _ := r.h.Pinned(8)
	standard, _ := r.h.DefaultStream()
	elsewhere, _ := r.h.NewStream()
	event, _ := r.h.NewEvent()
	defer func() { r.must(errors.Join(standard.Destroy(), elsewhere.Destroy(), event.Destroy())) }()
	launch := func(s device.Stream) error { return s.Launch(noteOp{r.log, 1}) }
	beside, _ := r.h.Alloc(3 * 4096) // memory that the pass does not use
	aside := func(s device.Stream, part int64) error {
		return s.Launch(noteOp{beside.Slice(4096*part, 4096), 1})
	}
	plants := []struct {
		name, want string
		plant      func(s device.Stream) error
	}{
		{"allocation", "op 1, note: allocation", func(device.Stream) error {
			_, err := r.h.Alloc(8)
			return err
		}},
		{"synchronisation", "op 1, note: synchronise", func(s device.Stream) error {
			return s.Synchronize()
		}},
		{"wait for an event", "op 1, note: synchronise", func(device.Stream) error {
			return event.Synchronize()
		}},
		{"device-wide", "op 1, note: device-wide synchronise", func(device.Stream) error {
			return r.h.Synchronize()
		}},
		{"query", "op 1, note: query", func(device.Stream) error {
			_, err := event.Done()
			return err
		}},
		{"read-back", "op 1, note: device-to-host read", func(device.Stream) error {
			return r.h.Read(make([]byte, 8), beside.Slice(8192, 8))
		}},
		{"default stream", "op 1, note: launch on the default stream", func(device.Stream) error {
			return aside(standard, 0)
		}},
		{"another stream", "op 1, note: launch on another stream", func(device.Stream) error {
			return aside(elsewhere, 1)
		}},
		{"foreign device", "op 2, note: memory of a foreign device: note.Log", func(s device.Stream) error {
			return s.Launch(noteOp{foreign, 1})
		}},
		{"foreign device, deep", "op 2, buried: memory of a foreign device: buried.Inner.Log",
			func(s device.Stream) error { return s.Launch(buriedOp{noteOp{foreign, 1}}) }},
		{"host read", "op 1, note: host read of a device value", func(device.Stream) error {
			pinned.Bytes()
			return nil
		}},
		{"allocation in an op", "op 2, greedy: allocation", func(s device.Stream) error {
			return s.Launch(greedyOp{})
		}},
		{"new stream in the pass", "op 1, note: new", func(device.Stream) error {
			s, err := r.h.NewStream()
			return errors.Join(err, s.Destroy())
		}},
		{"capture inside the pass", "op 1, note: begin capture", func(s device.Stream) error {
			_, _ = s.EndCapture()
			return errors.Join(s.BeginCapture(), end(s))
		}},
	}
	for _, c := range plants {
		report, err := Inspect(r.h, r.s, func(s device.Stream, _ Key) error {
			return errors.Join(launch(s), launch(s), c.plant(s), launch(s))
		}, Decode(1))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got, fault := report.Faults(), strings.SplitN(c.want, ": ", 2)[1]
		if len(got) == 0 || got[0] != c.want || !strings.Contains(report.String(), fault) {
			t.Errorf("%s: found %q, wants %q first, in\n%s", c.name, got, c.want, report)
		}
	}
}

// After an op that cannot run nothing does: on a GPU an op may wait for values of the one before for ever.
func TestInspectRunsNothingAfterAnOpLeftOut(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	foreign := foreignBuffer(t)
	ran := 0
	report, err := Inspect(r.h, r.s, func(s device.Stream, _ Key) error {
		return errors.Join(s.Launch(countOp{&ran}), s.Launch(noteOp{foreign, 1}), s.Launch(countOp{&ran}))
	}, Decode(1))
	if err != nil || ran != 1 || len(report.Ops) != 3 {
		t.Errorf("%d ops ran before and after one with foreign memory, %d are reported: %v", ran, len(report.Ops), err)
	}
}

// countOp counts how often it runs.
type countOp struct{ ran *int }

func (countOp) Kernel() string      { return "count" }
func (countOp) Check() error        { return nil }
func (o countOp) Host(*device.Host) { *o.ran++ }

// end ends a capture, which is empty.
func end(s device.Stream) error {
	if _, err := s.EndCapture(); !errors.Is(err, device.ErrEmptyCapture) {
		return err
	}
	return nil
}

func TestInspectReportsFaultsBeforeTheFirstOp(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	report, err := Inspect(r.h, r.s, func(s device.Stream, k Key) error {
		return errors.Join(s.Synchronize(), r.pass(s, k))
	}, Decode(1))
	if got := report.Faults(); err != nil || !slices.Equal(got, []string{"op 0, (before the first op): synchronise"}) {
		t.Errorf("%v, %q", err, got)
	}
}

func TestInspectFindsNoFaultInACleanPass(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	for _, k := range []Key{Decode(1), Prefill(64)} {
		report, err := Inspect(r.h, r.s, r.pass, k)
		ready := strings.Count(report.String(), "ready")
		if err != nil || len(report.Faults()) > 0 || len(report.Ops) != 3 || ready != 3 {
			t.Errorf("%s: %v, %d ops\n%s", k, err, len(report.Ops), report)
		}
	}
	if got := r.notes(); !slices.Equal(got, []int32{1, 1, 1, 64, 64, 64}) {
		t.Errorf("the inspected passes ran %v", got)
	}
}

func TestInspectRefusesAPassWithoutAnOp(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	empty := func(device.Stream, Key) error { return nil }
	if _, err := Inspect(r.h, r.s, empty, Decode(1)); !errors.Is(err, device.ErrEmptyCapture) {
		t.Errorf("%v, wants ErrEmptyCapture", err)
	}
}
