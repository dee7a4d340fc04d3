package measure

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// loaded returns the embedded model on the host.
func loaded(t *testing.T) *assembly.Prepared {
	t.Helper()
	l, err := assembly.Prepare(config.Options{Device: "host", MaxBatch: 4, MaxSeqLen: 128}, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Hardware.Device.(*device.Host).Close)
	return &l
}

func TestOpsMeasuresEveryKind(t *testing.T) {
	// A batch of 9 and a prompt of 200 tokens do not fit and are left out.
	report, err := Run(config.Options{Device: "host", MaxBatch: 4, MaxSeqLen: 128},
		Passes{Decode: "1,3,9", Prefill: "20,200", Context: 40}, "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range report.Rows {
		names = append(names, row.Kernel)
		if !(row.US > 0) || len(row.TimesUS) != samples || slices.Min(row.TimesUS) > row.US {
			t.Errorf("times of %+v", row)
		}
	}
	const (
		step   = "stage embed qkv attend output gateup down head sample pass"
		prompt = "stage embed qkv attend output gateup down gather head sample pass"
	)
	if got, want := strings.Join(names, " "), strings.Repeat(step+" ", 2)+prompt; got != want {
		t.Errorf("got %s", got)
	}
	if report.ReadGBs < 0.1 || report.Shape.Layers != 4 || report.Model != assembly.EmbeddedName ||
		report.Machine.Name == "" || report.Device != "host" {
		t.Errorf("got %+v", report)
	}
	if r := report.Rows[12]; r.Phase != "decode" || r.Rows != 3 || r.Context != 40 || r.Launches != 4 {
		t.Errorf("qkv of three sequences: %+v", r)
	}
	if r := report.Rows[20]; r.Phase != "prefill" || r.Rows != 20 || r.Context != 20 || r.Launches != 1 {
		t.Errorf("stage of a prompt: %+v", r)
	}
}

// Served passes have the memory of a generator that serves, and follow one of its longest steps.
func TestOpsAsServed(t *testing.T) {
	l := loaded(t)
	l.EngineOptions.LongChunk = 100
	p := pass{"decode", 2, 40}
	for _, served := range []bool{false, true} {
		r, err := newRig(l, []pass{p}, served)
		if err != nil {
			t.Fatal(err)
		}
		rows, slots, context, staged := 2, 4, 40, uint64(0)
		if served {
			g := l.EngineOptions.Geometry()
			rows, slots, context, staged = 100, g.Slots, g.Context, 2
		}
		if g := r.memory.Geometry; g.MaxRows != rows || g.Slots != slots || g.Context != context || r.staged != staged {
			t.Errorf("served %v: memory for %d rows, %d sequences of %d tokens after %d steps, wants %d, %d, %d, %d", served,
				g.MaxRows, g.Slots, g.Context, r.staged, rows, slots, context, staged)
		}
		if measured, err := r.measure(p); err != nil || len(measured) != 10 {
			t.Errorf("served %v: %d rows, %v", served, len(measured), err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}

// The bytes of a pass are the sum of its ops' bytes, and its weights are the model's.
func TestOpsCosts(t *testing.T) {
	l := loaded(t)
	r, err := newRig(l, []pass{{"decode", 2, 40}, {"prefill", 10, 10}}, false)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := r.measure(pass{"decode", 2, 40})
	if err != nil {
		t.Fatal(err)
	}
	c, sum := l.Model.Config, int64(0)
	for _, row := range rows[:len(rows)-1] {
		sum += row.Bytes * int64(row.Launches)
	}
	if pass := rows[len(rows)-1]; pass.Kernel != "pass" || pass.Bytes != sum || pass.Launches != 1 {
		t.Errorf("the ops move %d bytes, the pass %+v", sum, pass)
	}
	// Without attention, embed and sample.
	weights := sum - rows[3].Bytes*int64(c.Layers) - rows[1].Bytes - rows[8].Bytes
	if weights != l.Model.WeightBytes() {
		t.Errorf("weights of %d bytes, wants %d", weights, l.Model.WeightBytes())
	}
	kv := int64(2 * 40 * 2 * c.KVHeads * c.HeadDim * 4)
	if attend := rows[3]; attend.Bytes != kv || attend.Flops != int64(4*2*40*c.Heads*c.HeadDim) {
		t.Errorf("attend %+v, wants %d bytes", attend, kv)
	}
	if head := rows[7]; head.Flops != int64(2*2*c.Vocab*c.Hidden) {
		t.Errorf("head %+v", head)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// Each sequence has its own pages and the requested length, as in a generator.
func TestOpsPassesAreReal(t *testing.T) {
	l := loaded(t)
	h, p := l.Hardware.Device.(*device.Host), pass{"decode", 3, 40}
	r, err := newRig(l, []pass{p}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.measure(p); err != nil {
		t.Fatal(err)
	}
	var taken []int32
	for slot := range 3 {
		taken = append(taken, h.Int32(r.memory.Slots.BlockTable)[slot*r.memory.Slots.Pages:][:3]...)
	}
	if !slices.Equal(taken, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("pages %v", taken)
	}
	if got := h.Int32(r.memory.Rows.Position)[:3]; !slices.Equal(got, []int32{39, 39, 39}) {
		t.Errorf("positions %v", got)
	}
	if got := h.Int32(r.memory.Rows.Sample)[:3]; !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("samples %v", got)
	}
	if counter := binary.LittleEndian.Uint32(h.Bytes(counterOf(t, r))); uint64(counter) != r.staged {
		t.Errorf("the device has staged %d steps, the rig believes %d", counter, r.staged)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// A prefill pass of several prompts has a sequence and a sample for each, of which the last may be shorter.
func TestOpsPassesOfPrompts(t *testing.T) {
	all, err := (&Passes{Prefill: "4,10,12", Context: 1, PromptTokens: 4}).passes(64, 4, 3, 128)
	if want := []pass{{"prefill", 4, 4}, {"prefill", 10, 4}, {"prefill", 12, 4}}; err != nil || !slices.Equal(all, want) {
		t.Fatalf("%+v, %v", all, err)
	}
	l := loaded(t)
	h, p := l.Hardware.Device.(*device.Host), all[1]
	r, err := newRig(l, []pass{p}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.measure(p); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of   device.Buffer
		want []int32
	}{
		"slots":       {r.memory.Rows.Slot, []int32{0, 0, 0, 0, 1, 1, 1, 1, 2, 2}},
		"positions":   {r.memory.Rows.Position, []int32{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}},
		"sample rows": {r.memory.Rows.Sample, []int32{3, 7, 9}},
	} {
		if got := h.Int32(c.of)[:len(c.want)]; !slices.Equal(got, c.want) {
			t.Errorf("%s %v, wants %v", name, got, c.want)
		}
	}
	kv := kernels.KV{DType: kernels.F32, Heads: 1, HeadDim: 8}
	if bytes, flops := cost(kernels.Attend{KV: kv, T: 10, Heads: 1}, p); bytes != 2*10*8*4 || flops != 4*8*(10+10+3) {
		t.Errorf("attention moves %d bytes in %d operations", bytes, flops)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// The measured ops of a prompt have the prefill class, those of decode the decode class. By themselves none counts on
// the op before it.
func TestOpsOfAPassAreOfItsClass(t *testing.T) {
	l := loaded(t)
	passes := []pass{{"decode", 2, 40}, {"prefill", 10, 10}}
	r, err := newRig(l, passes, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range passes {
		for _, apart := range []bool{true, false} {
			ops, err := r.ops(p, apart)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range ops {
				if a, ok := op.(kernels.Attend); ok && (a.Class == kernels.Prefill) != (p.phase == "prefill") {
					t.Errorf("attention of %s is of a prompt's class: %t", p.phase, a.Class == kernels.Prefill)
				} else if ok && a.AfterQKV == apart {
					t.Errorf("attention of %s comes after QKV: %t, apart: %t", p.phase, a.AfterQKV, apart)
				}
			}
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// Latents are read once, as keys and as values.
func TestCostOfLatentAttention(t *testing.T) {
	kv := kernels.KV{DType: kernels.BF16, Heads: 1, HeadDim: 576, Values: 512}
	bytes, flops := cost(kernels.Attend{KV: kv, T: 1, Heads: 16}, pass{"decode", 1, 1000})
	if bytes != 1000*576*2 || flops != 2*1000*16*(576+512) {
		t.Errorf("%d bytes and %d operations", bytes, flops)
	}
}

// The gate of a layer's embedding reads its rows and the inputs, and writes the rows.
func TestCostOfPerLayerGate(t *testing.T) {
	if bytes, _ := cost(kernels.PerLayerGate{T: 2, Cols: 256, Layers: 35}, pass{"decode", 2, 100}); bytes != 2*256*4*3 {
		t.Errorf("%d bytes", bytes)
	}
}

// counterOf returns the device's counter of steps.
func counterOf(t *testing.T, r *rig) device.Buffer {
	t.Helper()
	var pass recorder
	if err := r.model.Forward(&pass, r.memory, r.shape(1)); err != nil {
		t.Fatal(err)
	}
	return pass.ops[0].(kernels.Stage).Counter
}

func TestOpsPrints(t *testing.T) {
	report := Report{Model: "m", ReadGBs: 10, Rows: []Row{
		{Kernel: "head", Phase: "decode", Rows: 1, Context: 9, Launches: 1, US: 2, Bytes: 8000, Flops: 16e6},
	}}
	var text, object bytes.Buffer
	if err := errors.Join(report.Write(&text, false), report.Write(&object, true)); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "2.00 us      4.0 GB/s     8.00 TFLOP/s") {
		t.Errorf("got %s", got)
	}
	var again Report
	if err := json.Unmarshal(object.Bytes(), &again); err != nil || again.Rows[0].US != 2 || again.Model != "m" {
		t.Errorf("%s: %v", object.String(), err)
	}
}

func TestOpsRefuses(t *testing.T) {
	for _, o := range []Passes{
		{Decode: "x", Context: 1}, {Decode: "1", Prefill: "0", Context: 1}, {Decode: "1", Context: 0},
		{Decode: "9", Prefill: "999", Context: 1},
		{Prefill: "20", Context: 1, PromptTokens: -1}, {Prefill: "20", Context: 1, PromptTokens: 5},
	} {
		if _, err := o.passes(64, 4, 3, 128); !errors.Is(err, config.ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
