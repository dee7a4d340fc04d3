package measure

import (
	"reflect"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// zeros are tensors in bfloat16.
type zeros struct{ c model.Config }

func (z zeros) Tensor(name string) (weights.Tensor, error) {
	for _, s := range z.c.Tensors() {
		if s.Name == name {
			return weights.Tensor{Name: name, DType: weights.BF16, Shape: s.Shape, Data: make([]byte, 2*s.Elements())}, nil
		}
	}
	return weights.Tensor{}, weights.ErrMissing
}

func (z zeros) Names() (names []string) {
	for _, s := range z.c.Tensors() {
		names = append(names, s.Name)
	}
	return names
}

// taggedStream fails if an op whose values are tagged is launched without the pass that gives them: on a GPU it would wait
// for ever.
type taggedStream struct {
	device.Stream
	t     *testing.T
	began bool // whether a pass has begun since the last wait or capture
	ops   int  // that have tags
}

func (s *taggedStream) BeginCapture() error {
	s.began = false
	return s.Stream.BeginCapture()
}

func (s *taggedStream) Synchronize() error {
	s.began = false
	return s.Stream.Synchronize()
}

func (s *taggedStream) Launch(op device.Op) error {
	tags := reflect.ValueOf(op).FieldByName("Tags")
	if op.Kernel() == "embed" {
		s.began = true
	}
	if tags.IsValid() && !tags.IsZero() {
		if s.ops++; !s.began {
			s.t.Errorf("%s is launched without its pass", op.Kernel())
		}
	}
	return s.Stream.Launch(op)
}

// Kinds of op are measured by themselves without tagged values, a whole pass with them.
func TestKindsAreMeasuredWithoutTags(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	c := model.Config{Name: "llama", Vocab: 64, Hidden: 64, Inner: 64, Layers: 2, Heads: 1, KVHeads: 1, HeadDim: 64,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
	m, err := model.Load(h, c, zeros{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := m.NewStepMemory(h, model.Geometry{MaxRows: 2, Slots: 2, MaxSamples: 2, Context: 64, PageTokens: 16,
		Pages: 8, RingSlots: ringSlots, KVType: kernels.BF16})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := h.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	s := &taggedStream{Stream: stream, t: t}
	r := &rig{dev: h, stream: s, model: m, memory: memory, prompts: 1}
	if _, err := r.measure(pass{"decode", 1, 20}); err != nil {
		t.Fatal(err)
	}
	if s.ops == 0 {
		t.Error("no op has tags: this test tests nothing")
	}
	if err := stream.Destroy(); err != nil {
		t.Error(err)
	}
}
