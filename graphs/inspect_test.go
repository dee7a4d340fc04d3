package graphs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel/kernels/device"
)

// buriedOp has its memory one struct down.
type buriedOp struct{ Inner noteOp }

func (buriedOp) Kernel() string        { return "buried" }
func (buriedOp) Check() error          { return nil }
func (o buriedOp) Host(h *device.Host) { o.Inner.Host(h) }

// greedyOp allocates while it runs, as a library without a workspace does.
type greedyOp struct{}

func (greedyOp) Kernel() string      { return "greedy" }
func (greedyOp) Check() error        { return nil }
func (greedyOp) Host(h *device.Host) { _, _ = h.Alloc(8) }

// Each fault that is planted between the second op and the third is found, and
// the op is named.
func TestInspectNamesTheOpAtFault(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	other := device.NewHost(device.HostOptions{})
	defer other.Close()
	for range 9 { // so that the foreign buffer's number exists on no other device
		_, _ = other.Alloc(8)
	}
	foreign, _ := other.Alloc(8)
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
	plants := map[string]struct {
		plant func(s device.Stream) error
		want  string
	}{
		"allocation":              {func(device.Stream) error { _, err := r.h.Alloc(8); return err }, "op 1, note: allocation"},
		"synchronisation":         {func(s device.Stream) error { return s.Synchronize() }, "op 1, note: synchronise"},
		"wait for an event":       {func(device.Stream) error { return event.Synchronize() }, "op 1, note: synchronise"},
		"device-wide":             {func(device.Stream) error { return r.h.Synchronize() }, "op 1, note: device-wide synchronise"},
		"query":                   {func(device.Stream) error { _, err := event.Done(); return err }, "op 1, note: query"},
		"read-back":               {func(device.Stream) error { return r.h.Read(make([]byte, 8), beside.Slice(8192, 8)) }, "op 1, note: device-to-host read"},
		"default stream":          {func(device.Stream) error { return aside(standard, 0) }, "op 1, note: launch on the default stream"},
		"another stream":          {func(device.Stream) error { return aside(elsewhere, 1) }, "op 1, note: launch on another stream"},
		"foreign device":          {func(s device.Stream) error { return s.Launch(noteOp{foreign, 1}) }, "op 2, note: memory of a foreign device: note.Log"},
		"foreign device, deep":    {func(s device.Stream) error { return s.Launch(buriedOp{noteOp{foreign, 1}}) }, "op 2, buried: memory of a foreign device: buried.Inner.Log"},
		"host read":               {func(device.Stream) error { pinned.Bytes(); return nil }, "op 1, note: host read of a device value"},
		"allocation in an op":     {func(s device.Stream) error { return s.Launch(greedyOp{}) }, "op 2, greedy: allocation"},
		"new stream in the pass":  {func(device.Stream) error { s, err := r.h.NewStream(); return errors.Join(err, s.Destroy()) }, "op 1, note: new"},
		"capture inside the pass": {func(s device.Stream) error { _, _ = s.EndCapture(); return errors.Join(s.BeginCapture(), end(s)) }, "op 1, note: begin capture"},
	}
	for name, c := range plants {
		report, err := Inspect(r.h, r.s, func(s device.Stream, _ Key) error {
			return errors.Join(launch(s), launch(s), c.plant(s), launch(s))
		}, Decode(1))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := report.Faults(); len(got) == 0 || got[0] != c.want || !strings.Contains(report.String(), strings.SplitN(c.want, ": ", 2)[1]) {
			t.Errorf("%s: found %q, wants %q first, in\n%s", name, got, c.want, report)
		}
	}
}

func end(s device.Stream) error {
	if _, err := s.EndCapture(); !errors.Is(err, device.ErrEmptyCapture) {
		return err
	}
	return nil
}

// A fault before the first op has no op to be named after.
func TestInspectNamesWhatComesBeforeTheFirstOp(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	report, err := Inspect(r.h, r.s, func(s device.Stream, k Key) error {
		return errors.Join(s.Synchronize(), r.pass(s, k))
	}, Decode(1))
	if got := report.Faults(); err != nil || !slices.Equal(got, []string{"op 0, (before the first op): synchronise"}) {
		t.Errorf("%v, %q", err, got)
	}
}

func TestInspectFindsNoFaultWhereThereIsNone(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	for _, k := range []Key{Decode(1), Prefill(64)} {
		report, err := Inspect(r.h, r.s, r.pass, k)
		if err != nil || len(report.Faults()) > 0 || len(report.Ops) != 3 || strings.Count(report.String(), "ready") != 3 {
			t.Errorf("%s: %v, %d ops\n%s", k, err, len(report.Ops), report)
		}
	}
	if got := r.notes(); !slices.Equal(got, []int32{1, 1, 1, 64, 64, 64}) {
		t.Errorf("the inspected passes ran %v", got)
	}
}

func TestInspectRefusesAPassWithoutAnOp(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	if _, err := Inspect(r.h, r.s, func(device.Stream, Key) error { return nil }, Decode(1)); !errors.Is(err, device.ErrEmptyCapture) {
		t.Errorf("%v, wants ErrEmptyCapture", err)
	}
}
