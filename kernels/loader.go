package kernels

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"reel.internal/reel/kernels/device"
)

// The loader's memory. One thread reads a mapped file in the page cache at 8 GB/s, with a fault
// for each page. Eight threads read 58 GB/s, the bandwidth of an H200's bus; on another host, with an H100, eight read
// 43 GB/s and twelve 47, which was the bandwidth of the bus there.
const (
	stagingPart    = 4 << 20 // bytes of a part; parts are larger for weights of which 16 rows are
	stagingReaders = 12
	stagingDepth   = stagingReaders + 2 // parts: the GPU packs some while others are read
	stagingStreams = 3                  // parts take turns, so that one is copied while another is packed

	// StagingBytes is the device memory of a [Loader] beside the weights.
	StagingBytes = stagingDepth * stagingPart
)

// Loader loads weights onto a device. On a GPU weights go through pinned memory in parts: several
// goroutines read parts while the GPU copies and packs earlier ones, and a weight's memory is there before its content.
// Only one goroutine at a time may use a Loader, but for Cancel. Close ends it, and waits for reads and packing.
//
// A part goes from a reader to the sender, which has the GPU copy and pack it, to the collector, which waits for that,
// and back to a reader. The driver lets one thread in at a time, and a thread that waits for the GPU spins, so there is
// one of each, and captures beside them go on. Still driver calls on other threads take longer beside reading, which
// begins with Start or Close.
type Loader struct {
	// Read is called with the number of elements of each part that was read, on a goroutine of the Loader; nil: by none.
	// A device that reads weights as they are has no parts.
	Read func(elements int64)

	dev    device.Device
	packer device.Device // nil if the device reads weights as they are
	ranks  int           // of the device

	size    int64   // bytes of a part; 0 before the first weight
	parts   []*part // all of them
	streams []device.Stream
	free    chan *part // for readers
	filled  chan *part // for the sender
	sent    chan *part // for the collector
	readers sync.WaitGroup
	others  sync.WaitGroup // sender and collector
	started bool           // they run
	count   int            // number of readers
	depth   int            // number of parts

	mu     sync.Mutex
	more   sync.Cond // todo has grown, or ended is set
	todo   []reading // in the order of the weights
	ended  bool      // nothing will be added to todo
	failed error     // the first failure to read, send or pack, or Cancel's reason, until Close returns it
}

// part is staging memory for one part of a weight.
type part struct {
	pinned device.Buffer
	mapped *device.Mapped
	raw    device.Buffer // on the device
	stream device.Stream // shared with other parts
	done   device.Event  // the part's last content is packed
	holds  reading       // what a reader has read last
}

// reading is a request to read and pack a part of a weight.
type reading struct {
	pack    Pack // without Src
	sources []RowSource
	first   int   // row
	bytes   int64 // of the part's rows, of one source
}

// NewLoader returns a loader for dev. It allocates nothing before the first weight.
func NewLoader(dev device.Device) *Loader {
	if dev.Capabilities().PacksWeights {
		return newPacker(dev, min(stagingReaders, runtime.GOMAXPROCS(0)), stagingDepth)
	}
	return newLoader(dev, nil, 0, 0)
}

// Packs reports whether the loader reads weights in parts.
func (l *Loader) Packs() bool { return l.packer != nil }

// ranksOf returns the ranks of a device.
func ranksOf(dev device.Device) int {
	if ranks := dev.Capabilities().Ranks; ranks != nil {
		return ranks.Count
	}
	return 1
}

// newPacker returns a loader that packs, with the given numbers of readers and parts. There must be
// at least as many parts as readers.
func newPacker(d device.Device, readers, depth int) *Loader {
	return newLoader(d, d, readers, depth)
}

func newLoader(d, packer device.Device, readers, depth int) *Loader {
	l := &Loader{dev: d, packer: packer, ranks: ranksOf(d), count: readers, depth: depth}
	l.more.L = &l.mu
	return l
}

// Weight loads a [rows][cols] matrix of little-endian elements. The device may keep data
// itself, so the caller must not change it until the weight is freed, nor before Close, which
// also returns failures after Weight has returned. A GPU packs the weight, and rounds F32 to
// BF16. Errors: [device.ErrBadShape], also for a number of columns that cannot be packed;
// [device.ErrUnreadable]; and the device's own. After an error the loader is closed.
func (l *Loader) Weight(t DType, rows, cols int, data []byte) (Weight, error) {
	if want := int64(rows) * t.Bytes(int64(cols)); int64(len(data)) != want {
		return Weight{}, fmt.Errorf("%w: weight [%d][%d] has %d bytes, wants %d", device.ErrBadShape, rows, cols,
			len(data), want)
	}
	if l.packer == nil {
		return loadRowMajor(l.dev, Weight{DType: t, Rows: rows, Cols: cols}, data)
	}
	return l.packed(t, rows, cols, rowsOf(t, cols, data))
}

// rowsOf returns the source of rows that lie in memory as they are.
func rowsOf(t DType, cols int, data []byte) RowSource {
	row := t.Bytes(int64(cols))
	return func(dst []byte, first int) error {
		return device.CopyMapped(dst, data[int64(first)*row:][:len(dst)])
	}
}

// packed loads a weight onto a device that packs. There is one source of all ranks, or one of each.
func (l *Loader) packed(t DType, rows, cols int, sources ...RowSource) (Weight, error) {
	p := Pack{DType: t, Rows: rows, Cols: cols}
	err := CheckPackable(t, rows, cols)
	if err != nil {
		return Weight{}, err
	}
	if p.Dst, err = l.packer.Uncleared(p.packed().bytes()); err != nil { // packing writes all of it
		return Weight{}, err
	}
	if err = l.pack(p, sources); err != nil || l.failure() != nil {
		l.Cancel(err)
		// Close first: packing in progress writes to the memory that is freed.
		err = device.GiveBack(l.Close, func() error { return l.packer.Free(p.Dst) })
		return Weight{}, fmt.Errorf("pack weight [%d][%d]: %w", rows, cols, err)
	}
	return p.packed(), nil
}

// pack requests that the rows of sources are read in parts, and packed into whole.Dst.
func (l *Loader) pack(whole Pack, sources []RowSource) error {
	row := whole.DType.Bytes(int64(whole.Cols))
	rows := max(1, int(stagingPart/(row*tileRows))) * tileRows // of a part
	if err := l.open(int64(rows) * row); err != nil {
		return err
	}
	for first := 0; first < whole.Rows; first += rows {
		n := min(rows, whole.Rows-first)
		p := Pack{DType: whole.DType, Rows: n, Cols: whole.Cols}
		p.Dst = whole.Dst.Slice(PackedBytes(p.DType, first, p.Cols), p.packed().bytes())
		l.add(reading{p, sources, first, int64(n) * row})
	}
	return nil
}

// add leaves r to the readers.
func (l *Loader) add(r reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.todo = append(l.todo, r)
	l.more.Signal()
}

// next returns what a reader does next. It waits for that, and returns false once there will be nothing, or after a
// failure.
func (l *Loader) next() (r reading, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.todo) == 0 && !l.ended && l.failed == nil {
		l.more.Wait()
	}
	if len(l.todo) == 0 || l.failed != nil {
		return r, false
	}
	r, l.todo = l.todo[0], l.todo[1:]
	return r, true
}

// read is the loop of a reader.
func (l *Loader) read() {
	for r, ok := l.next(); ok; r, ok = l.next() {
		p := <-l.free
		p.holds = r
		if err := p.fill(); err != nil {
			l.fail(err)
			l.free <- p
			continue
		}
		l.filled <- p
	}
}

// send is the loop of the sender.
func (l *Loader) send() {
	defer close(l.sent)
	for p := range l.filled {
		err := p.send()
		l.fail(err)
		if err == nil && l.Read != nil {
			l.Read(int64(p.holds.pack.Rows) * int64(p.holds.pack.Cols))
		}
		l.sent <- p
	}
}

// collect is the loop of the collector.
func (l *Loader) collect() {
	for p := range l.sent {
		l.fail(p.done.Synchronize())
		l.free <- p
	}
}

// uploaded returns the bytes of one source in a part, a multiple of 16 as a part's size is.
func (r reading) uploaded() int64 { return (r.bytes + 15) &^ 15 }

// fill reads what the part holds.
func (p *part) fill() error {
	r := p.holds
	for i, source := range r.sources {
		if err := source(p.mapped.Bytes()[int64(i)*r.uploaded():][:r.bytes], r.first); err != nil {
			return err
		}
	}
	return nil
}

// send enqueues the packing of what the part holds.
func (p *part) send() error {
	r, uploaded := p.holds, p.holds.uploaded()
	r.pack.Src = p.raw.Slice(0, r.bytes)
	upload := Upload{Src: p.pinned.Slice(0, int64(len(r.sources))*uploaded), Dst: p.raw.Slice(0, uploaded)}
	if len(r.sources) > 1 {
		upload.Ranks = len(r.sources)
	}
	if err := p.stream.Launch(upload); err != nil {
		return err
	}
	if err := p.stream.Launch(r.pack); err != nil {
		return err
	}
	return p.stream.Record(p.done)
}

// fail keeps err if it is the first failure, and has the readers end; nil is none.
func (l *Loader) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil && err != nil {
		l.failed = err
		l.more.Broadcast()
	}
}

// Cancel ends the reading soon. Close, and Weight before it, then return err, unless something failed before; nil is no
// reason. Any goroutine may call it.
func (l *Loader) Cancel(err error) { l.fail(err) }

func (l *Loader) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// open allocates parts of at least bytes bytes.
func (l *Loader) open(bytes int64) error {
	if l.parts != nil && l.size >= bytes {
		return nil
	}
	if err := l.Close(); err != nil {
		return err
	}
	l.size = max(bytes, stagingPart)
	l.free, l.ended = make(chan *part, l.depth), false
	return l.openParts()
}

// Start begins to read. What Weight is asked for later is read at once.
func (l *Loader) Start() {
	if l.started {
		return
	}
	l.started = true
	l.filled, l.sent = make(chan *part, l.depth), make(chan *part, l.depth)
	l.others.Go(l.send)
	l.others.Go(l.collect)
	for range l.count {
		l.readers.Go(l.read)
	}
}

// openParts allocates the parts, at once: making the pages of pinned memory takes most of the time.
func (l *Loader) openParts() error {
	for range stagingStreams { // each takes the driver a millisecond
		s, err := l.packer.NewStream()
		if err != nil {
			return err
		}
		l.streams = append(l.streams, s)
	}
	var all sync.WaitGroup
	errs := make([]error, l.depth)
	for i := range errs {
		p := &part{stream: l.streams[i%stagingStreams]}
		l.parts = append(l.parts, p)
		all.Go(func() {
			if errs[i] = p.open(l.packer, l.size, l.ranks); errs[i] == nil {
				l.free <- p
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (p *part) open(d device.Device, bytes int64, ranks int) (err error) {
	if p.done, err = d.NewEvent(); err != nil {
		return err
	}
	if p.pinned, p.mapped, err = d.Pinned(int64(ranks) * bytes); err != nil {
		return err
	}
	p.raw, err = d.Alloc(bytes)
	return err
}

// Close waits until every weight is on the device, and frees the loader's memory. It returns the
// first failure since Weight returned. It may be called again.
func (l *Loader) Close() error {
	if l.parts != nil {
		l.Start()
	}
	l.end()
	l.readers.Wait()
	if l.started {
		close(l.filled)
		l.others.Wait()
	}
	l.started = false
	releases := []func() error{l.failure}
	for _, s := range l.streams {
		releases = append(releases, s.Synchronize, s.Destroy)
	}
	for _, p := range l.parts {
		releases = append(releases, p.releases(l.packer)...)
	}
	err := device.GiveBack(releases...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.todo, l.parts, l.streams, l.failed = nil, nil, nil, nil
	return err
}

// end has the readers end once nothing is left to read.
func (l *Loader) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.Broadcast()
}

// releases returns functions that free p, which may be allocated in part.
func (p *part) releases(d device.Device) (all []func() error) {
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

// LoadWeight loads one weight, as [Loader.Weight] does, and waits for it.
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
