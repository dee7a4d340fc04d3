package graphs

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"reel.internal/reel/kernels/device"
)

// Audited is the part of a device that the readiness detector needs.
type Audited interface {
	// Trace calls fn for every later call on the device; nil ends the trace.
	Trace(fn func(device.Call))
	// Owns reports whether a buffer is memory of this device.
	Owns(device.Buffer) bool
	// Capabilities says how many ranks the device has. Each makes every call.
	Capabilities() device.Capabilities
}

// Report is the readiness detector's report of a pass, op by op.
type Report struct {
	Key Key
	Ops []OpReport
}

// OpReport holds the faults of one op, or those before the first op.
type OpReport struct {
	Kernel string // "(before the first op)" if there is no op yet
	Faults []string
}

// Faults lists every fault of the pass with its op. A pass without faults can be captured.
func (r Report) Faults() []string {
	var all []string
	for i, op := range r.Ops {
		for _, f := range op.Faults {
			all = append(all, fmt.Sprintf("op %d, %s: %s", i, op.Kernel, f))
		}
	}
	return all
}

// String returns the report as text, one line an op.
func (r Report) String() string {
	var b strings.Builder
	for i, op := range r.Ops {
		verdict := "ready"
		if len(op.Faults) > 0 {
			verdict = strings.Join(op.Faults, "; ")
		}
		fmt.Fprintf(&b, "%4d  %-8s %s\n", i, op.Kernel, verdict)
	}
	return b.String()
}

// Inspect runs the pass of k once on s, op by op, and reports every call that a
// capture forbids: an allocation, a wait, a read of device results, a launch on
// another stream, a use of another device's memory. A call between two ops is
// reported with the op before it. Nothing else may use the device meanwhile.
func Inspect(dev Audited, s device.Stream, pass Pass, k Key) (Report, error) {
	a := &auditor{Stream: s, dev: dev, ranks: 1, report: Report{Key: k}}
	if r := dev.Capabilities().Ranks; r != nil {
		a.ranks = r.Count
	}
	dev.Trace(a.see)
	err := pass(a, k)
	dev.Trace(nil)
	if err == nil {
		err = s.Synchronize()
	}
	if len(a.report.Ops) == 0 && err == nil {
		err = fmt.Errorf("%w: the pass launched nothing", device.ErrEmptyCapture)
	}
	return a.report, err
}

// auditor is the stream that an inspected pass launches on. It sees the calls of the
// pass and, while it waits, those of the running op.
type auditor struct {
	device.Stream
	dev   Audited
	ranks int

	mu     sync.Mutex
	report Report
	lost   bool                    // whether an op was left out, so that those after it may wait for ever
	own    map[device.CallKind]int // expected calls of the auditor itself
}

// Launch runs op and waits for it, so that op's calls can be told from the pass's. It
// does not run an op with memory of another device, which would lose the device, nor those after it.
func (a *auditor) Launch(op device.Op) error {
	a.mu.Lock()
	a.report.Ops = append(a.report.Ops, OpReport{Kernel: op.Kernel()})
	a.own = map[device.CallKind]int{device.CallLaunch: a.ranks, device.CallSynchronize: a.ranks}
	a.mu.Unlock()
	if a.foreign(reflect.ValueOf(op), op.Kernel()) {
		a.lost = true
	}
	if a.lost {
		return nil
	}
	if err := a.Stream.Launch(op); err != nil {
		return err
	}
	return a.Stream.Synchronize()
}

// see reports a call as a fault, unless it is the auditor's own.
func (a *auditor) see(c device.Call) {
	a.mu.Lock()
	mine := a.own[c.Kind] > 0 && !c.Default
	if mine {
		a.own[c.Kind]--
	}
	a.mu.Unlock()
	switch {
	case mine:
	case c.Kind == device.CallLaunch && c.Default:
		a.fault("launch on the default stream")
	case c.Kind == device.CallLaunch:
		a.fault("launch on another stream")
	default:
		a.fault(c.Kind.String())
	}
}

// fault adds a fault to the last op.
func (a *auditor) fault(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.report.Ops) == 0 {
		a.report.Ops = append(a.report.Ops, OpReport{Kernel: "(before the first op)"})
	}
	last := &a.report.Ops[len(a.report.Ops)-1]
	last.Faults = append(last.Faults, text)
}

// foreign reports whether v, an op's argument struct or a field of it, holds memory
// of another device, and adds a fault for each such buffer. path names v.
func (a *auditor) foreign(v reflect.Value, path string) (found bool) {
	if b, ok := v.Interface().(device.Buffer); ok {
		if found = !b.IsZero() && !a.dev.Owns(b); found {
			a.fault("memory of a foreign device: " + path)
		}
		return found
	}
	if v.Kind() != reflect.Struct {
		return false
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			found = a.foreign(v.Field(i), path+"."+f.Name) || found
		}
	}
	return found
}
