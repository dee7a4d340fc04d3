package engine

import (
	"errors"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// planter is a device on which one op also writes an element outside its buffers.
type planter struct {
	device.Device
	of    string                           // the op's kernel
	where func(op device.Op) device.Buffer // the element
}

func (p *planter) NewStream() (device.Stream, error) {
	s, err := p.Device.NewStream()
	return &plantingStream{s, p}, err
}

// Trace hides all calls, so that the readiness detector does not report the planted launch.
func (p *planter) Trace(func(device.Call)) {}

type plantingStream struct {
	device.Stream
	p *planter
}

func (s *plantingStream) Launch(op device.Op) error {
	err := s.Stream.Launch(op)
	if op.Kernel() == s.p.of {
		err = errors.Join(err, s.Stream.Launch(kernels.Fill{Data: s.p.where(op), Value: 1}))
	}
	return err
}

// beside returns the 4 bytes at an offset from b's beginning, which may lie outside b.
func beside(b device.Buffer, offset int64) device.Buffer {
	number, id, at := b.Handle()
	return device.NewBuffer(number, id, at+offset+4).Slice(at+offset, 4)
}

// overruns are overruns of one element in a pass, and a part of the error that reports each.
var overruns = []struct {
	name, of string
	where    func(op device.Op) device.Buffer
	want     string
}{
	{"none", "qkv", func(op device.Op) device.Buffer { return op.(kernels.QKV).Out.Slice(0, 4) }, ""},
	{"past activations", "embed", func(op device.Op) device.Buffer {
		x := op.(kernels.Embed).X
		return beside(x, x.Bytes())
	}, "0 bytes past its end"},
	{"before activations", "attend", func(op device.Op) device.Buffer {
		return beside(op.(kernels.Attend).Out, -4)
	}, "0 bytes before its beginning"},
	{"past a weight", "head", func(op device.Op) device.Buffer {
		w := op.(kernels.Head).W.Data
		return beside(w, w.Bytes())
	}, "0 bytes past its end"},
	{"past the results", "sample", func(op device.Op) device.Buffer {
		r := op.(kernels.Sample).Records
		return beside(r, r.Bytes())
	}, "0 bytes past its end"},
	{"past a layer's values in a page", "qkv", func(op device.Op) device.Buffer {
		kv := op.(kernels.QKV).KV
		return beside(kv.Data, kv.PageBytes()+kv.PageBytes()/int64(kv.Layers)*int64(op.(kernels.QKV).Layer+1))
	}, "KV page 1, between the layers 0 and 1"},
	{"before a layer's keys in a page", "qkv", func(op device.Op) device.Buffer {
		kv := op.(kernels.QKV).KV
		return beside(kv.Data, kv.PageBytes()+kv.PageBytes()/int64(kv.Layers)*int64(op.(kernels.QKV).Layer)-4)
	}, "KV page 1, between the layers -1 and 0"},
}

// checkPlanted runs Check for the micro model c on dev, once for each of overruns.
func checkPlanted(t *testing.T, dev device.Device, c model.Config, o Options) {
	t.Helper()
	for _, planted := range overruns {
		g := device.NewGuard(&planter{dev, planted.of, planted.where})
		m, err := model.Load(g, c, randomTensors{c}, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(g, m, o)
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		err = e.Check(func(Checked, error) { checked++ })
		found := errors.Is(err, device.ErrOverrun)
		right := found && planted.want != "" && strings.Contains(err.Error(), planted.want) ||
			!found && planted.want == "" && err == nil
		if !right || checked == 0 {
			t.Errorf("%s: %v, wants %q", planted.name, err, planted.want)
		}
		if err := e.Close(); err != nil && !errors.Is(err, device.ErrOverrun) {
			t.Error(err)
		}
	}
}

// On a guarded device Check reports one element that was written outside a buffer or outside a layer of a KV page.
// It reports nothing if every write is inside.
func TestCheckFindsOverruns(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	o := nano()
	o.Precapture, o.MaxGraphs, o.GraphMemory, o.MaxBatch, o.Pages = []int{3}, 10, 10000, 2, 17
	checkPlanted(t, h, microConfig(), o)
}
