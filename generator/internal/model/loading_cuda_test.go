//go:build cuda

package model_test

import (
	"bytes"
	"errors"
	"testing"

	"reel.internal/reel/generator/internal/model"
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
	want, reason := content(whole.Weights()), errors.New("not wanted")
	for _, cancelled := range []bool{false, true} {
		l, err := model.BeginLoad(d, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		if got := content(l.Model.Weights()); !bytes.Equal(got, make([]byte, len(got))) {
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
