package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// stagingPart is how much of a weight a GPU is given at once, in bytes; a weight whose
// 16 rows are more takes that. StagingBytes is what a Loader takes of a GPU beside
// the weights.
const (
	stagingPart  = 8 << 20
	stagingDepth = 2
	StagingBytes = stagingDepth * stagingPart
)

// Loader gives a device weights. Those that a GPU packs go through pinned memory, part
// by part: while one part is copied to the GPU and packed there, the next is read. One
// goroutine at a time may use it; Close ends it, and waits for what is under way.
type Loader struct {
	dev    device.Memory
	packer device.Device // nil where the device reads weights as they are
	stream device.Stream
	parts  [stagingDepth]part
	next   int
}

// part is room for one part of a weight.
type part struct {
	pinned device.Buffer
	mapped *device.Mapped
	raw    device.Buffer // on the device
	done   device.Event  // what was last in it is packed
}

// NewLoader makes a loader for dev. It takes nothing before the first weight.
func NewLoader(dev device.Memory) *Loader {
	if d, ok := dev.(device.Device); ok && d.Name() == "cuda" {
		return newPacker(d)
	}
	return &Loader{dev: dev}
}

func newPacker(d device.Device) *Loader { return &Loader{dev: d, packer: d} }

// Weight gives the device a [rows][cols] matrix of little-endian elements. The device
// may keep data itself: the caller leaves it unchanged until the weight is freed, and
// until Close. A GPU packs it, and rounds F32 to BF16. Errors: device.ErrBadShape,
// also for columns that a packed weight cannot have; device.ErrUnreadable; and the
// device's own.
func (l *Loader) Weight(t DType, rows, cols int, data []byte) (Weight, error) {
	if want := int64(rows) * int64(cols) * t.Size(); int64(len(data)) != want {
		return Weight{}, fmt.Errorf("%w: weight [%d][%d] has %d bytes, wants %d", device.ErrBadShape, rows, cols, len(data), want)
	}
	if l.packer == nil {
		return keep(l.dev, Weight{DType: t, Rows: rows, Cols: cols}, data)
	}
	p := Pack{DType: t, Rows: rows, Cols: cols}
	if cols%tileCols != 0 {
		return Weight{}, p.Check()
	}
	var err error
	if p.Dst, err = l.packer.Alloc(p.packed().bytes()); err != nil {
		return Weight{}, err
	}
	if err = l.pack(p, data); err != nil {
		// The stream has ended before the memory goes that it writes to.
		err = device.GiveBack(func() error { return err }, l.Close, func() error { return l.packer.Free(p.Dst) })
		return Weight{}, fmt.Errorf("pack weight [%d][%d]: %w", rows, cols, err)
	}
	return p.packed(), nil
}

// pack sends data, and enqueues what packs it into whole.Dst.
func (l *Loader) pack(whole Pack, data []byte) error {
	row := int64(whole.Cols) * whole.DType.Size()
	rows := max(1, int(stagingPart/(row*tileRows))) * tileRows // of a part
	if err := l.open(int64(rows) * row); err != nil {
		return err
	}
	for first := 0; first < whole.Rows; first += rows {
		n := min(rows, whole.Rows-first)
		p := Pack{DType: whole.DType, Rows: n, Cols: whole.Cols}
		p.Dst = whole.Dst.Slice(int64(first)*int64(whole.Cols)*2, p.packed().bytes())
		if err := l.send(p, data[int64(first)*row:int64(first+n)*row]); err != nil {
			return err
		}
	}
	return nil
}

// send reads one part and enqueues its packing.
func (l *Loader) send(p Pack, data []byte) error {
	at := &l.parts[l.next%stagingDepth]
	l.next++
	if err := at.done.Synchronize(); err != nil {
		return err
	}
	if err := device.CopyMapped(at.mapped.Bytes(), data); err != nil {
		return err
	}
	n := int64(len(data))
	p.Src = at.raw.Slice(0, n)
	if err := l.stream.Launch(Upload{Src: at.pinned.Slice(0, n), Dst: p.Src}); err != nil {
		return err
	}
	if err := l.stream.Launch(p); err != nil {
		return err
	}
	return l.stream.Record(at.done)
}

// open makes room for parts of so many bytes.
func (l *Loader) open(bytes int64) (err error) {
	if l.stream != nil && l.parts[0].raw.Bytes() >= bytes {
		return nil
	}
	if err := l.Close(); err != nil {
		return err
	}
	if l.stream, err = l.packer.NewStream(); err != nil {
		return err
	}
	for i := range l.parts {
		p := &l.parts[i]
		if p.done, err = l.packer.NewEvent(); err != nil {
			return err
		}
		if p.pinned, p.mapped, err = l.packer.Pinned(max(bytes, stagingPart)); err != nil {
			return err
		}
		if p.raw, err = l.packer.Alloc(max(bytes, stagingPart)); err != nil {
			return err
		}
	}
	return nil
}

// Close waits until every weight is on the device, and gives back what the loader
// took. It may be called again.
func (l *Loader) Close() error {
	if l.stream == nil {
		return nil
	}
	releases := []func() error{l.stream.Synchronize, l.stream.Destroy}
	for _, p := range l.parts {
		if p.done != nil {
			releases = append(releases, p.done.Destroy)
		}
		for _, b := range []device.Buffer{p.pinned, p.raw} {
			if !b.IsZero() {
				releases = append(releases, func() error { return l.packer.Free(b) })
			}
		}
	}
	l.stream, l.parts = nil, [stagingDepth]part{}
	return device.GiveBack(releases...)
}

// LoadWeight gives a device one weight, as Loader.Weight does, and waits for it.
func LoadWeight(m device.Memory, t DType, rows, cols int, data []byte) (Weight, error) {
	l := NewLoader(m)
	w, err := l.Weight(t, rows, cols, data)
	return w, device.GiveBack(func() error { return err }, l.Close)
}
