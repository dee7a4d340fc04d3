package engine

import (
	"errors"
	"strings"
	"testing"

	"reel/generator/internal/model"
	"reel/kernels"
	"reel/kernels/device"
)

// planter is a device on which an op writes one element to where it must not.
type planter struct {
	device.Device
	of    string // the op
	where func(op device.Op) device.Buffer
}

func (p *planter) NewStream() (device.Stream, error) {
	s, err := p.Device.NewStream()
	return &plantingStream{s, p}, err
}

// Trace shows nothing: the readiness detector is not to see what is planted.
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

// beside is the element of 4 bytes that lies so many bytes from the beginning of b, outside of b too.
func beside(b device.Buffer, offset int64) device.Buffer {
	number, id, at := b.Handle()
	return device.NewBuffer(number, id, at+offset+4).Slice(at+offset, 4)
}

// overruns are one-element overruns of a pass, and what they are reported as.
var overruns = []struct {
	name, of string
	where    func(op device.Op) device.Buffer
	want     string
}{
	{"none", "qkv", func(op device.Op) device.Buffer { return op.(kernels.QKV).Out.Slice(0, 4) }, ""},
	{"past activations", "embed", func(op device.Op) device.Buffer { x := op.(kernels.Embed).X; return beside(x, x.Bytes()) }, "0 bytes past its end"},
	{"before activations", "attend", func(op device.Op) device.Buffer { return beside(op.(kernels.Attend).Out, -4) }, "0 bytes before its beginning"},
	{"past a weight", "head", func(op device.Op) device.Buffer { w := op.(kernels.Head).W.Data; return beside(w, w.Bytes()) }, "0 bytes past its end"},
	{"past the results", "sample", func(op device.Op) device.Buffer { r := op.(kernels.Sample).Results; return beside(r, r.Bytes()) }, "0 bytes past its end"},
	{"past a layer's values in a page", "qkv", func(op device.Op) device.Buffer {
		kv := op.(kernels.QKV).KV
		return beside(kv.Data, kv.PageBytes()+kv.PageBytes()/int64(kv.Layers)*int64(op.(kernels.QKV).Layer+1))
	}, "KV page 1, between the layers 0 and 1"},
	{"before a layer's keys in a page", "qkv", func(op device.Op) device.Buffer {
		kv := op.(kernels.QKV).KV
		return beside(kv.Data, kv.PageBytes()+kv.PageBytes()/int64(kv.Layers)*int64(op.(kernels.QKV).Layer)-4)
	}, "KV page 1, between the layers -1 and 0"},
}

// checkPlanted checks a micro model on dev, where each of the overruns in turn is planted.
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
		if found := errors.Is(err, device.ErrOverrun); found != (planted.want != "") || found && !strings.Contains(err.Error(), planted.want) || !found && err != nil || checked == 0 {
			t.Errorf("%s: %v, wants %q", planted.name, err, planted.want)
		}
		if err := e.Close(); err != nil && !errors.Is(err, device.ErrOverrun) {
			t.Error(err)
		}
	}
}

// On a guarded device a check reports one element written past a buffer, or past
// a layer of a KV page, eagerly and in a replay; and nothing where none is.
func TestCheckFindsOverruns(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	o := nano()
	o.Precapture, o.MaxGraphs, o.GraphMemory, o.MaxBatch, o.Pages = []int{3}, 10, 10000, 2, 17
	checkPlanted(t, h, microConfig(), o)
}
