package model_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// eagleHeads are the folders of testdata/eagle with an EAGLE-3 head for testdata/eagle/target: one of each published
// form and norm.
var eagleHeads = []string{"safeailab", "speculators", "parts"}

// openHead opens the EAGLE-3 head in testdata/eagle/name.
func openHead(t testing.TB, name string, target model.Config) (model.Config, model.Tensors) {
	t.Helper()
	dir := filepath.Join("testdata", "eagle", name)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseEagle(raw)
	if err != nil || !model.IsEagle(raw) {
		t.Fatal(err)
	}
	w, err := weights.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	c, named, err := c.EagleTensors(w)
	if err == nil {
		c, err = c.ForTarget(target)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Context = target.Context
	return c, named
}

// eagleGolden is a prompt, the greedy tokens after it, and the drafts after each of them, of a plain implementation.
type eagleGolden struct {
	Prompt []int32   `json:"prompt"`
	Tokens []int32   `json:"tokens"`
	Drafts [][]int32 `json:"drafts"`
}

// eagleRunner returns a runner with an EAGLE-3 head, and the reference. Before they are loaded, as wraps the weights of
// both, and change changes the head's config.
func eagleRunner(t *testing.T, dev device.Device, name string, kv kernels.DType, as func(model.Tensors) model.Tensors,
	change func(e *model.Eagle)) (*runner, eagleGolden) {
	t.Helper()
	c, w := checkpoint(t, "eagle/target")
	m, err := model.Load(dev, c, as(w), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	headConfig, named := openHead(t, name, c)
	change(headConfig.Eagle)
	head, err := model.Load(dev, headConfig, as(named), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	var g eagleGolden
	raw, err := os.ReadFile(filepath.Join("testdata", "eagle", name, "golden.json"))
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRunnerIn(t, dev, m, model.Geometry{MaxRows: 32, Slots: 1, MaxSamples: 8, Masks: 8, Context: c.Context,
		PageTokens: 16, Pages: c.Context / 16, RingSlots: 2, KVType: kv, Drafter: model.ModelDrafter, DraftModel: head})
	t.Cleanup(func() {
		r.free()
		if err := errors.Join(head.Free(dev), m.Free(dev)); err != nil {
			t.Error(err)
		}
	})
	return r, g
}

// verify runs a verify step of a sequence with so many drafts, and returns them and how many results it gave.
func (r *runner) verify(drafts int) (guessed []int32, results int) {
	r.t.Helper()
	s := kernels.Step{Rows: []kernels.Row{{Position: kernels.FromDevice, Token: kernels.FromDevice}},
		Samples: []int32{0}}
	for i := range drafts {
		s.Rows = append(s.Rows, kernels.Row{Position: kernels.FromDevice, Token: kernels.FromDraft})
		s.Samples = append(s.Samples, int32(i+1))
	}
	r.step(s, model.Shape{Rows: drafts + 1, Samples: drafts + 1, Queries: drafts + 1})
	raw := make([]byte, 4*(drafts+1))
	if err := r.dev.Read(raw, r.memory.Rows.Token.Slice(0, int64(len(raw)))); err != nil {
		r.t.Fatal(err)
	}
	for i := range drafts {
		guessed = append(guessed, int32(raw[4*(i+1)])|int32(raw[4*(i+1)+1])<<8)
	}
	return guessed, int(r.result().Count)
}

// follow runs a decode step that an EAGLE-3 head follows.
func (r *runner) follow() {
	row := kernels.Row{Position: kernels.FromDevice, Token: kernels.FromDevice}
	r.step(kernels.Step{Rows: []kernels.Row{row}, Samples: []int32{0}}, model.Shape{Rows: 1, Samples: 1, Follow: true})
}

// An EAGLE-3 head of either form, with any of the norms, drafts what the plain implementation drafts: after prompts in
// chunks of any size, after decode steps that it follows, after drafts that stand and drafts that fall. With weights in
// bfloat16 near ties may differ.
func TestEagleEqualsReference(t *testing.T) {
	for _, name := range eagleHeads {
		t.Run(name, func(t *testing.T) {
			h := device.NewHost(device.HostOptions{})
			t.Cleanup(h.Close)
			equalsEagle(t, h, name, kernels.F32, widened, 1)
			equalsEagle(t, h, name, kernels.F32, asTheyAre, 0.85)
		})
	}
}

// equalsEagle compares an EAGLE-3 head's drafts with the plain implementation's, as long as the model's own tokens are
// those of the reference. At least a share of them is equal.
func equalsEagle(t *testing.T, dev device.Device, name string, kv kernels.DType, as func(model.Tensors) model.Tensors,
	share float64) {
	t.Helper()
	equal, all, stood := 0, 0, 0
	for _, chunk := range []int{32, 7, 1} {
		for pattern := range 4 {
			r, g := eagleRunner(t, dev, name, kv, as, func(*model.Eagle) {})
			r.prompt(g.Prompt, chunk)
			for at, step := 0, pattern; at < len(g.Drafts); step++ {
				drafts, results := []int{7, 0, 3, 1, 5}[step%5], 1
				var guessed []int32
				if drafts == 0 {
					r.follow()
				} else {
					guessed, results = r.verify(drafts)
				}
				for i := 0; i < drafts; i++ {
					if all++; guessed[i] == g.Drafts[at][i] {
						equal++
						continue
					}
					if share == 1 {
						t.Fatalf("chunks of %d, after %d tokens: drafts %v, wants %v", chunk, at+1, guessed,
							g.Drafts[at])
					}
					break // the later ones follow from it
				}
				if stands := r.stands(guessed, results); results-1 != stands {
					t.Fatalf("after %d tokens %d results, and %d of the drafts %v stand", at+1, results, stands,
						guessed)
				}
				stood += results - 1
				if !r.drew(g.Tokens[at+1:], results) {
					if share == 1 {
						t.Fatalf("chunks of %d, after %d tokens: another token is drawn", chunk, at+1)
					}
					break
				}
				at += results
			}
		}
	}
	t.Logf("%d of %d drafts are equal, %d stood", equal, all, stood)
	if float64(equal) < share*float64(all) || all < 100 || stood == 0 || stood == all {
		t.Error("too few are equal, or none or all stood")
	}
}

// token returns the i-th result of the last step.
func (r *runner) token(i int) int32 {
	var record kernels.Record
	r.memory.Record(r.next-1, i, &record)
	return record.Token
}

// stands returns how many drafts are what the last step drew, from the first on.
func (r *runner) stands(drafts []int32, results int) (n int) {
	for n < len(drafts) && n < results && drafts[n] == r.token(n) {
		n++
	}
	return n
}

// drew reports whether the results of the last step are those tokens, as far as they go.
func (r *runner) drew(tokens []int32, results int) bool {
	for i := range min(results, len(tokens)) {
		if r.token(i) != tokens[i] {
			return false
		}
	}
	return true
}

// Without a part of what makes them, drafts differ from the reference: features of the wrong layers, and norms left
// out.
func TestEagleReferenceIsSensitive(t *testing.T) {
	for _, name := range eagleHeads {
		for change, by := range map[string]func(e *model.Eagle){
			"layers":   func(e *model.Eagle) { e.Layers = []int{1, 1, 1}[:len(e.Layers)] },
			"residual": func(e *model.Eagle) { e.NormedResidual = !e.NormedResidual },
			"output":   func(e *model.Eagle) { e.NormedOutput = !e.NormedOutput },
		} {
			if drafts, want := draftsOf(t, name, by); slices.EqualFunc(drafts, want, slices.Equal) {
				t.Errorf("%s: another %s changes no draft", name, change)
			}
		}
		if drafts, want := draftsOf(t, name, func(*model.Eagle) {}); !slices.EqualFunc(drafts, want, slices.Equal) {
			t.Errorf("%s: drafts %v, wants %v", name, drafts, want)
		}
	}
}

// draftsOf returns all drafts of a changed head after each token, and those of the reference.
func draftsOf(t *testing.T, name string, change func(e *model.Eagle)) (drafts, want [][]int32) {
	t.Helper()
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	r, g := eagleRunner(t, h, name, kernels.F32, widened, change)
	r.prompt(g.Prompt, 7)
	for at := 0; at < len(g.Drafts); {
		guessed, results := r.verify(7)
		drafts, want = append(drafts, guessed), append(want, g.Drafts[at])
		at += results
	}
	return drafts, want
}
