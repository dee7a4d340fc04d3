package graphs

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// noteOp appends Value to a log in device memory.
type noteOp struct {
	Log   device.Buffer // int32: count, then values
	Value int32
}

func (noteOp) Kernel() string { return "note" }
func (noteOp) Check() error   { return nil }
func (o noteOp) Host(h *device.Host) {
	l := h.Int32(o.Log)
	l[0]++
	l[1+(l[0]-1)%1000] = o.Value
}

// rig is a pool over a host device. Its pass logs the key's tokens three times.
type rig struct {
	*Pool
	t    *testing.T
	h    *device.Host
	s    device.Stream
	log  device.Buffer
	next uint64
	lost bool // the device was lost, so its objects cannot be destroyed
}

const graphBytes = 1000

func newRig(t *testing.T, ho device.HostOptions, o Options) *rig {
	t.Helper()
	if ho.GraphBytes == 0 {
		ho.GraphBytes = graphBytes
	}
	r := &rig{t: t, h: device.NewHost(ho)}
	var err error
	r.s, err = r.h.NewStream()
	r.must(err)
	r.log, err = r.h.Alloc(4 * 1001)
	r.must(err)
	if o.MaxGraphs == 0 {
		o.MaxGraphs = 8
	}
	if o.Budget == 0 {
		o.Budget = 1 << 30
	}
	if o.Pass == nil {
		o.Pass = r.pass
	}
	o.Identity.Memory[0] = r.log
	r.Pool = NewPool(o)
	t.Cleanup(func() {
		r.h.Faults().FailAt(0, false)
		r.must(r.s.Synchronize())
		r.must(r.Close())
		r.must(r.s.Destroy())
		if l := r.h.Live(); !r.lost && (l.Graphs != 0 || l.Execs != 0 || l.Streams != 0) {
			t.Errorf("left on the device: %+v", l)
		}
		if s := r.Stats(); !r.lost && (s.Execs != 0 || s.Bytes != 0) {
			t.Errorf("left in the counts: %+v", s)
		}
		r.h.Close()
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pass(s device.Stream, k Key) error {
	for range 3 {
		if err := s.Launch(noteOp{r.log, int32(k.Tokens())}); err != nil {
			return err
		}
	}
	return nil
}

// run launches one step of k, waits for it and maintains the pool. It returns the plan.
func (r *rig) run(k Key) Plan {
	r.t.Helper()
	r.next++
	plan := r.Acquire(k)
	r.must(r.Launch(r.s, plan, r.next))
	r.must(r.s.Synchronize())
	r.Maintain(r.next, true)
	return plan
}

func (r *rig) precapture(keys ...Key) {
	r.t.Helper()
	_, err := r.Precapture(r.s, keys, func(int, int) {})
	r.must(err)
}

// rolling runs a roller until the test ends.
func (r *rig) rolling() {
	roller, ended := NewRoller(r.Pool, r.h), make(chan error, 1)
	before := r.h.Live().Streams
	go func() { ended <- roller.Run() }()
	for r.h.Live().Streams == before { // injected failures shall not hit the roller's stream
		runtime.Gosched()
	}
	r.t.Cleanup(func() {
		roller.Stop()
		if err := <-ended; err != nil {
			r.t.Errorf("the roller ended with %v", err)
		}
	})
}

// until runs steps of k until cond holds.
func (r *rig) until(k Key, event string, cond func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: did not happen: %+v", event, r.Stats())
		}
		r.run(k)
	}
}

// notes returns the log.
func (r *rig) notes() []int32 {
	r.must(r.s.Synchronize())
	l := r.h.Int32(r.log)
	return slices.Clone(l[1 : 1+l[0]])
}
