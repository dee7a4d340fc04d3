package model

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// small returns a config of the same form with few elements: what differs between families stays.
func small(c Config) Config {
	c.Layers = min(c.Layers, 6)
	c.Vocab, c.Hidden, c.Inner, c.Context, c.EOS = 97, 32, 48, 64, nil
	c.Heads, c.KVHeads, c.Quantisation = 4, 4/min(4, c.Heads/c.KVHeads), Quantisation{}
	if c.Rotated > 0 {
		c.Rotated = c.Rotated * 16 / c.HeadDim
	}
	c.HeadDim = 16
	if l := c.Latent; l != nil {
		c.Latent = &Latent{Rank: 16, QueryRank: min(l.QueryRank, 10), Rope: 6, Nope: 10, Value: 12}
	}
	if c.LongFactors != nil {
		c.ShortFactors, c.LongFactors = c.ShortFactors[:c.rotated()/2], c.LongFactors[:c.rotated()/2]
	}
	for i := range c.Windows {
		c.Windows[i] = min(c.Windows[i], 9)
	}
	if w := c.Wide; w != nil {
		c.Wide = &Wide{Layers: make([]bool, c.Layers), HeadDim: 24, KVHeads: 1, KeysAreValues: w.KeysAreValues}
		c.Local = make([]bool, c.Layers)
		for i := range c.Local {
			c.Local[i], c.Wide.Layers[i] = i%2 == 0, i%2 > 0
		}
	}
	if c.SharedKV != nil { // the layers before are of both kinds
		c.SharedKV = &SharedKV{Layers: 2, Inner: 2 * c.Inner}
	}
	c.PerLayer = min(c.PerLayer, 8)
	if c.Experts != nil { // as many of them
		e := *c.Experts
		e.Inner, e.Shared, c.Experts = 24, min(e.Shared, c.Inner), &e
	}
	return c
}

// randomTensors returns tensors of bfloat16 that fit c, with numbers near 1 in vectors.
func randomTensors(c Config, r *rand.Rand) headers {
	h := headersOf(c)
	for _, t := range h {
		for at := 0; at < len(t.Data); at += 2 {
			v := float32(r.NormFloat64()) / 5
			if len(t.Shape) == 1 && !c.NormsFromOne {
				v++
			}
			binary.LittleEndian.PutUint16(t.Data[at:], uint16(math.Float32bits(v)>>16))
		}
	}
	return h
}

// Every published config of this package's tests gives a pass, made small: its logits after a prompt are numbers that
// differ, and those of the last token computed alone, as a decode pass does it.
func TestPublishedConfigsGiveAPass(t *testing.T) {
	if testing.Short() { // for the race detector, which is slow
		t.Skip("one worker computes")
	}
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	for name, text := range published {
		c, err := ParseConfig([]byte(text), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		c = small(c)
		m, err := Load(h, c, randomTensors(c, rand.New(rand.NewPCG(1, uint64(len(text))))), func(float64) {})
		if err != nil {
			t.Fatal(name, err)
		}
		whole, alone := lastLogits(t, h, m, 20), lastLogits(t, h, m, 19, 1)
		least, most := whole[0], whole[0]
		for i, v := range whole {
			least, most = min(least, v), max(most, v)
			if !(math.Abs(float64(v)-float64(alone[i])) <= 1e-4*(1+math.Abs(float64(v)))) {
				t.Errorf("%s: logit %d is %v after a prompt, %v of a decode pass", name, i, v, alone[i])
				break
			}
		}
		if !(most-least > 1e-2) || math.IsInf(float64(most-least), 0) {
			t.Errorf("%s: logits from %v to %v", name, least, most)
		}
		if err := m.Free(h); err != nil {
			t.Fatal(err)
		}
	}
}

// lastLogits returns the logits after tokens 1, 2, …, in steps of so many rows; the first is of the prefill class.
func lastLogits(t *testing.T, h *device.Host, m *Model, steps ...int) []float32 {
	t.Helper()
	memory, err := m.NewStepMemory(h, Geometry{MaxRows: 20, Slots: 1, MaxSamples: 1, Context: m.Config.Context,
		PageTokens: 16, Pages: 4, RingSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := h.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	token := int32(0)
	for n, rows := range steps {
		s := kernels.Step{Number: uint64(n), Samples: []int32{int32(rows - 1)}}
		for range rows {
			s.Rows = append(s.Rows, kernels.Row{Position: token, Token: token + 1})
			token++
		}
		class := kernels.Decode
		if n == 0 {
			class, s.Inits = kernels.Prefill, []kernels.Init{{Generation: 1}}
			s.Pages = []kernels.PageEntry{{Index: 0, Page: 3}, {Index: 1, Page: 1}}
		}
		err := errors.Join(memory.Write(&s), m.Forward(stream, memory, Shape{Class: class, Rows: rows, Samples: 1}),
			stream.Synchronize())
		if err != nil {
			t.Fatal(err)
		}
	}
	logits := append([]float32(nil), h.Float32(memory.Logits())[:m.Config.Vocab]...)
	if err := errors.Join(stream.Destroy(), memory.Free(h)); err != nil {
		t.Fatal(err)
	}
	return logits
}
