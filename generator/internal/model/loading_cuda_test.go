//go:build cuda

package model_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// A model that is being loaded onto a GPU has its memory, and no weight before Start. After Wait the weights are those
// of a load that waits. A load that is cancelled says why.
func TestGPUBeginLoad(t *testing.T) {
	d := openGPU(t)
	c, w := checkpoint(t, "llama-2")
	whole, err := model.Load(d, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	content := func(b device.Buffer) []byte {
		raw := make([]byte, b.Bytes())
		if err := d.Read(raw, b); err != nil {
			t.Fatal(err)
		}
		return raw
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Destroy() }()
	poison := func(b device.Buffer) []byte {
		if err := errors.Join(s.Launch(kernels.Fill{Data: b, Value: kernels.Poison}), s.Synchronize()); err != nil {
			t.Fatal(err)
		}
		return content(b)
	}
	want, reason := content(whole.Weights()), errors.New("not wanted")
	for _, cancelled := range []bool{false, true} {
		l, err := model.BeginLoad(d, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		// What was read before would now be lost, and missing after Wait.
		poisoned := poison(l.Model.Weights())
		if time.Sleep(10 * time.Millisecond); !bytes.Equal(content(l.Model.Weights()), poisoned) {
			t.Error("weights are read before Start")
		}
		if cancelled {
			l.Cancel(reason)
			if err := l.Wait(); !errors.Is(err, reason) {
				t.Errorf("got %v, want %v", err, reason)
			}
		} else {
			l.Start()
			if err := l.Wait(); err != nil || !bytes.Equal(content(l.Model.Weights()), want) {
				t.Errorf("%v, or other weights than by Load", err)
			}
		}
		if err := l.Model.Free(d); err != nil {
			t.Error(err)
		}
	}
	if err := whole.Free(d); err != nil {
		t.Error(err)
	}
}
