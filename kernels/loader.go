package kernels

import (
	"fmt"
	"runtime"
	"sync"

	"reel/kernels/device"
)

// stagingPart is how much of a weight a GPU is given at once, in bytes; a weight whose
// 16 rows are more takes that. StagingBytes is what a Loader takes of a GPU beside
// the weights.
//
// One thread reads 8 GB/s of a mapped file that is in the page cache, each page being
// a fault, and eight read 58 GB/s, as much as the bus of an H200 takes.
const (
	stagingPart    = 4 << 20
	stagingReaders = 8
	stagingDepth   = stagingReaders + 2 // the GPU packs some parts while others are read
	StagingBytes   = stagingDepth * stagingPart
)

// Loader gives a device weights. Those that a GPU packs go through pinned memory, part
// by part, which several goroutines read while the GPU copies and packs what they have
// read before. One goroutine at a time may use a Loader; Close ends it, and waits for
// what is under way.
type Loader struct {
	dev    device.Device
	packer device.Device // nil if the device reads weights as they are

	size    int64        // bytes of a part; 0 while nothing is taken
	parts   []*part      // all there are
	free    chan *part   // in the order in which the GPU is done with them
	todo    chan reading // for the readers
	readers sync.WaitGroup
	count   int // of readers
	depth   int // of parts

	mu     sync.Mutex
	failed error // of a reader, until Close returns it
}

// part is room for one part of a weight.
type part struct {
	pinned device.Buffer
	mapped *device.Mapped
	raw    device.Buffer // on the device
	stream device.Stream
	done   device.Event // what was last in it is packed
}

// reading is a part of a weight to read and to pack.
type reading struct {
	pack Pack // without Src
	data []byte
}

// NewLoader makes a loader for dev. It takes nothing before the first weight.
func NewLoader(dev device.Device) *Loader {
	if dev.Capabilities().PacksWeights {
		return newPacker(dev, min(stagingReaders, runtime.GOMAXPROCS(0)), stagingDepth)
	}
	return &Loader{dev: dev}
}

// newPacker makes a loader of so many readers, and of no fewer parts.
func newPacker(d device.Device, readers, depth int) *Loader {
	return &Loader{dev: d, packer: d, count: readers, depth: depth}
}

// Weight gives the device a [rows][cols] matrix of little-endian elements. The device
// may keep data itself: the caller leaves it unchanged until the weight is freed, and
// until Close, which also returns what fails after Weight has returned. A GPU packs it,
// and rounds F32 to BF16. Errors: device.ErrBadShape, also for columns that a packed
// weight cannot have; device.ErrUnreadable; and the device's own; the loader is then
// closed.
func (l *Loader) Weight(t DType, rows, cols int, data []byte) (Weight, error) {
	if want := int64(rows) * t.Bytes(int64(cols)); int64(len(data)) != want {
		return Weight{}, fmt.Errorf("%w: weight [%d][%d] has %d bytes, wants %d", device.ErrBadShape, rows, cols, len(data), want)
	}
	if l.packer == nil {
		return loadRowMajor(l.dev, Weight{DType: t, Rows: rows, Cols: cols}, data)
	}
	p := Pack{DType: t, Rows: rows, Cols: cols}
	if cols%tileCols != 0 {
		return Weight{}, p.Check()
	}
	var err error
	if p.Dst, err = l.packer.Alloc(p.packed().bytes()); err != nil {
		return Weight{}, err
	}
	if err = l.pack(p, data); err != nil || l.failure() != nil {
		// What is under way has ended before the memory goes that it writes to.
		err = device.GiveBack(func() error { return err }, l.Close, func() error { return l.packer.Free(p.Dst) })
		return Weight{}, fmt.Errorf("pack weight [%d][%d]: %w", rows, cols, err)
	}
	return p.packed(), nil
}

// pack has data read part by part, and packed into whole.Dst.
func (l *Loader) pack(whole Pack, data []byte) error {
	row := whole.DType.Bytes(int64(whole.Cols))
	rows := max(1, int(stagingPart/(row*tileRows))) * tileRows // of a part
	if err := l.open(int64(rows) * row); err != nil {
		return err
	}
	for first := 0; first < whole.Rows; first += rows {
		n := min(rows, whole.Rows-first)
		p := Pack{DType: whole.DType, Rows: n, Cols: whole.Cols}
		p.Dst = whole.Dst.Slice(int64(first)*int64(whole.Cols)*2, p.packed().bytes())
		l.todo <- reading{p, data[int64(first)*row : int64(first+n)*row]}
	}
	return nil
}

// read is a reader's loop.
func (l *Loader) read() {
	for r := range l.todo {
		p := <-l.free
		l.fail(p.send(r))
		l.free <- p
	}
}

// send reads one part and enqueues its packing.
func (p *part) send(r reading) error {
	if err := p.done.Synchronize(); err != nil {
		return err
	}
	if err := device.CopyMapped(p.mapped.Bytes(), r.data); err != nil {
		return err
	}
	n := int64(len(r.data))
	r.pack.Src = p.raw.Slice(0, n)
	if err := p.stream.Launch(Upload{Src: p.pinned.Slice(0, n), Dst: r.pack.Src}); err != nil {
		return err
	}
	if err := p.stream.Launch(r.pack); err != nil {
		return err
	}
	return p.stream.Record(p.done)
}

// fail keeps the first failure; nil is none.
func (l *Loader) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

func (l *Loader) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// open makes room for parts of so many bytes, and has readers wait for them.
func (l *Loader) open(bytes int64) error {
	if l.todo != nil && l.size >= bytes {
		return nil
	}
	if err := l.Close(); err != nil {
		return err
	}
	l.size = max(bytes, stagingPart)
	l.free, l.todo = make(chan *part, l.depth), make(chan reading)
	for range l.depth {
		p := &part{}
		l.parts = append(l.parts, p)
		if err := p.open(l.packer, l.size); err != nil {
			return err
		}
		l.free <- p
	}
	for range l.count {
		l.readers.Go(l.read)
	}
	return nil
}

func (p *part) open(d device.Device, bytes int64) (err error) {
	if p.stream, err = d.NewStream(); err != nil {
		return err
	}
	if p.done, err = d.NewEvent(); err != nil {
		return err
	}
	if p.pinned, p.mapped, err = d.Pinned(bytes); err != nil {
		return err
	}
	p.raw, err = d.Alloc(bytes)
	return err
}

// Close waits until every weight is on the device, and gives back what the loader
// took. It returns what failed since Weight returned. It may be called again.
func (l *Loader) Close() error {
	if l.todo == nil {
		return nil
	}
	close(l.todo)
	l.readers.Wait()
	releases := []func() error{l.failure}
	for _, p := range l.parts {
		releases = append(releases, p.releases(l.packer)...)
	}
	err := device.GiveBack(releases...)
	l.todo, l.parts, l.failed = nil, nil, nil
	return err
}

// releases give back what p has, all of which may not be there.
func (p *part) releases(d device.Device) (all []func() error) {
	if p.stream != nil {
		all = append(all, p.stream.Synchronize, p.stream.Destroy)
	}
	if p.done != nil {
		all = append(all, p.done.Destroy)
	}
	for _, b := range []device.Buffer{p.pinned, p.raw} {
		if !b.IsZero() {
			all = append(all, func() error { return d.Free(b) })
		}
	}
	return all
}

// LoadWeight gives a device one weight, as Loader.Weight does, and waits for it.
func LoadWeight(m device.Device, t DType, rows, cols int, data []byte) (Weight, error) {
	l := NewLoader(m)
	w, err := l.Weight(t, rows, cols, data)
	err = device.GiveBack(func() error { return err }, l.Close)
	if err != nil && !w.Data.IsZero() {
		err = device.GiveBack(func() error { return err }, func() error { return m.Free(w.Data) })
		w = Weight{}
	}
	return w, err
}
