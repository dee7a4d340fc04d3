package assembly

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// prepared returns a model that is ready but for its engine.
func prepared(t *testing.T, o config.Options) Prepared {
	t.Helper()
	l, err := prepareOn(func(config.Options) (hardware.Hardware, error) { return hardware.Host(), nil }, o,
		func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.weights.Close() })
	return l
}

// variants returns copies of v, one for each number, text and array of a byte in it, which differs there.
func variants(v reflect.Value) (all []reflect.Value) {
	vary := func(change func(reflect.Value)) {
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		change(c)
		all = append(all, c)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			for _, field := range variants(v.Field(i)) {
				vary(func(c reflect.Value) { c.Field(i).Set(field) })
			}
		}
	case reflect.Slice:
		vary(func(c reflect.Value) { c.Set(reflect.Append(v, reflect.Zero(v.Type().Elem()))) })
		for i := range v.Len() {
			for _, element := range variants(v.Index(i)) {
				vary(func(c reflect.Value) {
					c.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
					c.Index(i).Set(element)
				})
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			vary(func(c reflect.Value) { c.Set(reflect.New(v.Type().Elem())) })
			return all
		}
		vary(func(c reflect.Value) { c.SetZero() })
		for _, element := range variants(v.Elem()) {
			vary(func(c reflect.Value) {
				c.Set(reflect.New(v.Type().Elem()))
				c.Elem().Set(element)
			})
		}
	case reflect.Array:
		vary(func(c reflect.Value) { c.Index(v.Len() - 1).SetUint(c.Index(v.Len()-1).Uint() + 1) })
	case reflect.Bool:
		vary(func(c reflect.Value) { c.SetBool(!v.Bool()) })
	case reflect.String:
		vary(func(c reflect.Value) { c.SetString(v.String() + "x") })
	case reflect.Float32, reflect.Float64:
		vary(func(c reflect.Value) { c.SetFloat(v.Float() + 0.5) })
	case reflect.Uint8:
		vary(func(c reflect.Value) { c.SetUint(v.Uint() + 1) })
	default:
		vary(func(c reflect.Value) { c.SetInt(v.Int() + 1) })
	}
	return all
}

// Every part of the identity counts: versions, device, each field of the model's config, each file.
func TestIdentityHasAllParts(t *testing.T) {
	i := prepared(t, config.Options{Model: modelDir(t), MaxSeqLen: 64}).identity()
	i.Config.Windows, i.Config.Suppressed, i.Config.Eagle = []int{0, 4}, []int32{7}, &model.Eagle{Layers: []int{2, 3}}
	i.Files = []weights.FileState{{Name: "a"}, {Name: "b"}}
	all := append(variants(reflect.ValueOf(i)), reflect.ValueOf(i))
	seen, told := map[[32]byte]int{}, map[string]int{}
	for _, v := range all {
		sum, err := v.Interface().(identity).digest()
		if err != nil {
			t.Fatal(err)
		}
		seen[sum]++
	}
	tokens := variants(reflect.ValueOf(tokenIdentity{Config: i.Config}))
	for _, v := range tokens {
		told[v.Interface().(tokenIdentity).String()]++
	}
	if len(seen) != len(all) || len(all) < 35 || len(told) != len(tokens) || len(tokens) < 35 {
		t.Errorf("%d identities of %d have digests of their own, and %d of %d of tokens", len(seen), len(all), len(told),
			len(tokens))
	}
}

// stored returns how many pages a store has for an identity.
func stored(t *testing.T, dir string, identity [32]byte, write bool) int {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: dir, Bytes: 1 << 20, Identity: identity, PageTokens: 1,
		PageBytes: 1, Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if write {
		if _, _, err := s.Write(store.Page{Tokens: []int32{1}}, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	return len(s.Longest("", []int32{1}))
}

// Pages are found again after a restart with the same model, also with another context. A raised order of sums
// makes all unfound; so does a weight that was changed in place with the file's time set back.
func TestPagesAreFoundByTheSameIdentityOnly(t *testing.T) {
	model, dir := modelDir(t), filepath.Join(t.TempDir(), "cache")
	restart := func(length int) [32]byte {
		o := config.Options{Model: model, MaxSeqLen: length}
		l := prepared(t, o)
		sum, err := l.weightsSum(t.Context(), o)
		if err == nil {
			sum, err = l.pageIdentity(sum, [32]byte{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	stored(t, dir, restart(64), true)
	if stored(t, dir, restart(64), false) != 1 || stored(t, dir, restart(32), false) != 1 {
		t.Fatal("the page is not found after a restart")
	}
	l := prepared(t, config.Options{Model: model, MaxSeqLen: 64})
	i := l.identity()
	i.Files = l.files
	var err error
	if i.Weights, err = l.weights.Checksum(t.Context(), l.files, 1<<40); err != nil {
		t.Fatal(err)
	}
	same, err := i.digest()
	i.SumOrder++
	raised, err2 := i.digest()
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if stored(t, dir, same, false) != 1 || stored(t, dir, raised, false) != 0 {
		t.Error("a page of another order of sums is found, or one of the same is not")
	}
	path := filepath.Join(model, "model.safetensors")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	setWeight(t, path, info.ModTime())
	if stored(t, dir, restart(64), false) != 0 {
		t.Error("a page is found though a weight was changed in place")
	}
}

// setWeight changes a weight in place and sets the file's time.
func setWeight(t *testing.T, path string, modified time.Time) {
	t.Helper()
	time.Sleep(12 * time.Millisecond) // the kernel's clock for files has steps of 4 or 10 ms
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	at, last := int64(-2), make([]byte, 1)
	if at, err = f.Seek(at, 2); err == nil {
		_, err = f.ReadAt(last, at)
	}
	last[0] ^= 1
	_, err2 := f.WriteAt(last, at)
	if err = errors.Join(err, err2, f.Close(), os.Chtimes(path, modified, modified)); err != nil {
		t.Fatal(err)
	}
}

// Weights that were changed after the device read them give no identity, whether the files are mapped or the device
// has a copy of them; and a stop ends the reading.
func TestIdentityOfChangedWeights(t *testing.T) {
	for _, packed := range []bool{false, true} {
		o := config.Options{Model: modelDir(t), MaxSeqLen: 64}
		l := prepared(t, o)
		l.Hardware.Packed = packed
		if _, err := l.weightsSum(t.Context(), o); err != nil {
			t.Errorf("packed %t: %v", packed, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := l.weightsSum(ended, o); !errors.Is(err, context.Canceled) {
			t.Errorf("packed %t, after a stop: %v", packed, err)
		}
		setWeight(t, filepath.Join(o.Model, "model.safetensors"), time.Unix(0, l.files[0].Modified))
		if _, err := l.weightsSum(t.Context(), o); !errors.Is(err, weights.ErrChanged) {
			t.Errorf("packed %t: %v, wants %v", packed, err, weights.ErrChanged)
		}
	}
	// The embedded model has no files that change.
	if _, err := prepared(t, config.Options{MaxSeqLen: 64}).weightsSum(t.Context(), config.Options{}); err != nil {
		t.Error(err)
	}
}
