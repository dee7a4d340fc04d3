package model_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels/device"
)

// mutations returns the number of mutated files of each format; REEL_LONG makes it 600.
func mutations() int {
	if os.Getenv("REEL_LONG") != "" {
		return 600
	}
	return 120
}

// Mutations of the header of a model in each quantised format, of each architecture, end in a typed error or give a
// model that loads. They never panic, and together they allocate little.
func TestMutatedGGUFModels(t *testing.T) {
	architectures := slices.Sorted(maps.Keys(wide()))
	formats := slices.Sorted(maps.Keys(picks()))
	if testing.Short() { // for the race detector, which is slow
		formats = formats[3:6]
	}
	for i, format := range formats {
		t.Run(format, func(t *testing.T) {
			c := wide()[architectures[i%len(architectures)]]
			c.Vocab, c.Layers = 16, 1
			good := ggufmake.File(ggufmake.Pairs(c), ggufmake.Tensors(c, newRandom(c, picks()[format], 0), same(t)))
			file, err := weights.Open(ggufFS{fstest.MapFS{"model.gguf": {Data: good}}})
			if err != nil {
				t.Fatal(err)
			}
			data := 0
			for _, name := range file.Names() {
				x, _ := file.Tensor(name)
				data += (len(x.Data) + 31) / 32 * 32
			}
			mutate(t, good, len(good)-data)
		})
	}
}

// Mutations of the headers of files in Ollama's form end in a typed error too, or give a model that loads.
func TestMutatedOllamaForms(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	for _, x := range ollamaForms {
		c, w := checkpoint(t, x.family)
		f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
		x.change(t, &c, &f)
		good, data := ggufmake.File(f.pairs, f.tensors), 0
		for _, x := range f.tensors {
			data += (len(x.Data) + 31) / 32 * 32
		}
		random := rand.New(rand.NewPCG(25, uint64(len(good))))
		for range mutations() {
			header := mutated(random, good[:len(good)-data])
			if err := loadGGUF(h, append(header, good[len(good)-data:]...)); err != nil && !typedGGUF(err) {
				t.Fatalf("%s: untyped: %v", x.name, err)
			}
		}
	}
}

func mutate(t *testing.T, good []byte, header int) {
	t.Helper()
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	random := rand.New(rand.NewPCG(24, uint64(len(good))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refused := 0
	for range mutations() {
		changed := mutated(random, good[:header])
		err := loadGGUF(h, append(changed, good[header:]...))
		if err != nil {
			if refused++; !typedGGUF(err) {
				t.Fatalf("untyped: %v", err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	perFile := (after.TotalAlloc - before.TotalAlloc) / uint64(mutations())
	if 6*refused < 5*mutations() || perFile > uint64(4*len(good)+1<<20) {
		t.Errorf("%d of %d are refused, %d bytes allocated for each file of %d", refused, mutations(), perFile, len(good))
	}
}

// mutated returns a copy of a header with one or two changes: a byte, a number, or bytes left out.
func mutated(random *rand.Rand, header []byte) []byte {
	header = slices.Clone(header)
	for range 1 + random.IntN(2) {
		at := random.IntN(len(header) - 8)
		switch random.IntN(3) {
		case 0:
			header[at] = byte(random.Uint32())
		case 1:
			binary.LittleEndian.PutUint64(header[at:], 1<<random.IntN(64)-1)
		case 2:
			header = slices.Delete(header, at, at+1+random.IntN(8))
		}
	}
	return header
}

// loadGGUF reads a file and loads its model.
func loadGGUF(h *device.Host, data []byte) error {
	file, err := weights.Open(ggufFS{fstest.MapFS{"model.gguf": {Data: data}}})
	if err != nil {
		return err
	}
	defer file.Close()
	metadata, named, _ := model.FromOllama(file.Metadata(), file)
	c, tensors, err := model.ParseGGUF(metadata, named)
	if err == nil {
		err = c.CheckTensors(tensors)
	}
	if err != nil {
		return err
	}
	c.Context = min(c.Context, 128) // as the plan of memory lowers it
	m, err := model.Load(h, c, tensors, func(float64) {})
	if err != nil {
		return err
	}
	return m.Free(h)
}

// typedGGUF reports whether err is one that ParseGGUF or weights.Open documents.
func typedGGUF(err error) bool {
	return slices.ContainsFunc([]error{model.ErrUnsupported, model.ErrTensor, weights.ErrTruncated, weights.ErrHeader,
		weights.ErrTooLarge, weights.ErrDType, weights.ErrShape, weights.ErrRange, weights.ErrIndex, weights.ErrMissing},
		func(e error) bool { return errors.Is(err, e) }) ||
		strings.HasPrefix(err.Error(), "GGUF: model: ") // a value out of bounds, named
}
