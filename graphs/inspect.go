package graphs

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"reel/kernels/device"
)

// Audited is a device that shows its calls to the readiness detector.
type Audited interface {
	// Trace has fn see every call; nil ends it.
	Trace(fn func(device.Call))
	// Owns tells whether a buffer is memory of this device.
	Owns(device.Buffer) bool
}

// Report is what the readiness detector saw of a pass, op by op.
type Report struct {
	Key Key
	Ops []OpReport
}

// OpReport is one op of a pass, or what came before the first one.
type OpReport struct {
	Kernel string // "(before the first op)" where there is none
	Faults []string
}

// Faults lists every fault of the pass with its op; a pass without one can be captured.
func (r Report) Faults() []string {
	var all []string
	for i, op := range r.Ops {
		for _, f := range op.Faults {
			all = append(all, fmt.Sprintf("op %d, %s: %s", i, op.Kernel, f))
		}
	}
	return all
}

// String is the report as a person reads it, one line an op.
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

// Inspect runs the pass of k once on s, op by op, and names every call in it
// that a capture does not bear: an allocation, a wait, a read of what the device
// computed, a launch on another stream, memory of another device. What the pass
// does between two ops is the fault of the op before. Only the inspected pass
// uses the device meanwhile.
func Inspect(dev Audited, s device.Stream, pass Pass, k Key) (Report, error) {
	a := &auditor{Stream: s, dev: dev, report: Report{Key: k}}
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

// auditor is the stream that an inspected pass sees. Calls come from the pass
// and, while it waits, from the op that runs.
type auditor struct {
	device.Stream
	dev Audited

	mu     sync.Mutex
	report Report
	own    map[device.CallKind]int // calls to come that are the auditor's
}

// Launch runs op and waits, so that what op does is seen as its own. An op that
// names memory of another device is not run: it would bring the device down.
func (a *auditor) Launch(op device.Op) error {
	a.mu.Lock()
	a.report.Ops = append(a.report.Ops, OpReport{Kernel: op.Kernel()})
	a.own = map[device.CallKind]int{device.CallLaunch: 1, device.CallSynchronize: 1}
	a.mu.Unlock()
	if a.foreign(reflect.ValueOf(op), op.Kernel()) {
		return nil
	}
	if err := a.Stream.Launch(op); err != nil {
		return err
	}
	return a.Stream.Synchronize()
}

// see notes a call that is not the auditor's own.
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

func (a *auditor) fault(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.report.Ops) == 0 {
		a.report.Ops = append(a.report.Ops, OpReport{Kernel: "(before the first op)"})
	}
	last := &a.report.Ops[len(a.report.Ops)-1]
	last.Faults = append(last.Faults, what)
}

// foreign looks for memory of another device in an op's arguments.
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
