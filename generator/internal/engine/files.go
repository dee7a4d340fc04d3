package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"reel.internal/reel/generator/internal/kv"
	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// files is the tier of pages in files. One goroutine reads for requests, before they are added to the scheduler, and
// one writes, one page at a time: the page is copied to staging beside the steps, as to the host tier. The engine's
// thread never waits for the disk.
type files struct {
	store   atomic.Pointer[store.Store] // nil before UseStore, and after an error of the disk
	reads   chan *pageRead
	writes  chan store.Page
	ending  atomic.Bool // reads are given up
	running sync.WaitGroup

	staging device.Buffer
	mapped  *device.Mapped
	copied  device.Event // the copy to staging
	copying bool
	writing *kv.Node // being copied or written
}

// pageRead reads some pages of a request's prompt.
type pageRead struct {
	sequence *sequence
	from     int // index of the first page
	places   []int32
	memory   [][]byte     // of the places
	ids      []store.ID   // of the pages
	good     [][32]byte   // of the pages that were read
	store    *store.Store // they are read from
}

// readPages is the most pages that are read for one request before it is another one's turn.
const readPages = 8

// UseStore lets the engine read prompts' pages from a store, and write the pages that prompts have left since New.
// Close s after Run has returned. With nil no store will come. Options.Files must be set.
func (e *Engine) UseStore(s *store.Store) { e.send(command{kind: useStore, store: s}) }

// useStore begins to use a store, on the engine's thread.
func (e *Engine) useStore(s *store.Store) (err error) {
	f := &e.files
	if s == nil || e.host.stream == nil {
		e.sched.WriteFiles(false)
		return nil
	}
	if f.copied, err = e.dev.NewEvent(); err != nil {
		return err
	}
	f.staging, f.mapped, err = e.dev.Pinned(e.memory.KV.PageBytes())
	if errors.Is(err, device.ErrSticky) {
		return err
	}
	if err != nil {
		e.warn("the cache directory is not used: " + err.Error())
		e.sched.WriteFiles(false)
		return nil
	}
	f.reads, f.writes = make(chan *pageRead, e.opts.maxQueued()), make(chan store.Page, 1)
	f.running.Go(e.readFiles)
	f.running.Go(func() { e.writeFiles(s) })
	f.store.Store(s)
	return nil
}

// storedPages returns the files of the pages that a prompt begins with. The last prompt token is always computed.
func (e *Engine) storedPages(s *sequence) []store.ID {
	if f := e.files.store.Load(); f != nil && s.scheduled.Scope != "" {
		return f.Longest(s.scheduled.Scope, s.scheduled.Prompt[:len(s.scheduled.Prompt)-1])
	}
	return nil
}

// stored returns the number of pages in files that a user's prompts can find, after dropping them if asked to.
func (e *Engine) stored(s *store.Store, user uint32, drop bool) int {
	if e.opts.CacheScope == ScopeAll {
		if drop {
			s.DropAll()
		}
		pages, _ := s.Usage()
		return pages
	}
	if drop {
		s.Drop(uint64(user))
	}
	return s.UsageOf(uint64(user))
}

// add adds a sequence to the scheduler, after the pages of its prompt that have files were read.
func (e *Engine) add(s *sequence) {
	if len(s.stored) > 0 && e.beginRead(s, e.sched.Found(&s.scheduled)) {
		return
	}
	if err := e.sched.Add(&s.scheduled); err != nil {
		e.end(s, "", ErrBusy)
	}
}

// beginRead begins to read the pages of a prompt from the index on. It returns false if there is nothing to read, or
// no place to read it to.
func (e *Engine) beginRead(s *sequence, from int) bool {
	f := e.files.store.Load()
	if f == nil || from >= len(s.stored) || len(e.files.reads) == cap(e.files.reads) {
		return false
	}
	r := &pageRead{sequence: s, from: from, store: f}
	r.places = e.sched.BeginRead(&s.scheduled, min(readPages, len(s.stored)-from))
	for _, place := range r.places {
		r.memory = append(r.memory, e.placeMemory(place))
	}
	if len(r.places) == 0 {
		return false
	}
	r.ids = s.stored[from : from+len(r.places)]
	e.files.reads <- r
	return true
}

// readFiles reads pages until reads is closed.
func (e *Engine) readFiles() {
	for r := range e.files.reads {
		for i, id := range r.ids {
			if e.files.ending.Load() || r.store.Read(id, r.memory[i]) != nil {
				break // the pages after it are computed
			}
			r.good = append(r.good, id)
		}
		e.send(command{kind: pagesRead, read: r})
	}
}

// finishRead adds the pages that were read to the cache, and reads further ones or adds the sequence. Each page is
// read at most once: if it gave way meanwhile, it is computed.
func (e *Engine) finishRead(r *pageRead) {
	s := r.sequence
	found := e.sched.FinishRead(&s.scheduled, r.from, r.places, r.good)
	if e.sequences[s.handle] != s { // cancelled
		return
	}
	if next := r.from + len(r.places); found < next || len(r.good) < len(r.places) || !e.beginRead(s, found) {
		s.stored = nil
		e.add(s)
	}
}

// advanceWrites copies the next page that is to be written, and passes it to the writer when the copy is done.
func (e *Engine) advanceWrites() error {
	f := &e.files
	if f.copying {
		done, err := f.copied.Done()
		if err != nil || !done {
			return err
		}
		f.copying = false
		f.writes <- store.Page{Parent: f.writing.Parent().File(), Scope: f.writing.Scope(), User: f.writing.User(),
			Tokens: f.writing.Tokens()}
		e.sched.EndWrite(f.writing)
	}
	if f.writing != nil || f.store.Load() == nil {
		return nil
	}
	if f.writing = e.sched.BeginWrite(); f.writing == nil {
		return nil
	}
	f.copying = true
	op := kernels.StorePage{KV: e.memory.KV, Page: int(f.writing.Page()), To: f.staging}
	if err := e.host.stream.Launch(op); err != nil {
		return err
	}
	return e.host.stream.Record(f.copied)
}

// writeFiles writes the staged pages until writes is closed.
func (e *Engine) writeFiles(s *store.Store) {
	for p := range e.files.writes {
		id, _, err := s.Write(p, e.files.mapped.Bytes())
		e.send(command{kind: pageWritten, file: id, failed: err})
	}
}

// finishWrite notes that the staged page was written, or that it was not: then those after it are not written either.
func (e *Engine) finishWrite(c command) {
	if c.failed == nil {
		e.files.writing.SetFile(c.file)
	}
	if errors.Is(c.failed, store.ErrOff) {
		e.files.store.Store(nil)
		e.sched.WriteFiles(false)
	}
	e.files.writing = nil
}

// endFiles waits for the goroutines and gives back what they use.
func (e *Engine) endFiles() {
	f := &e.files
	if f.reads == nil {
		return
	}
	f.store.Store(nil)
	f.ending.Store(true)
	close(f.reads)
	close(f.writes)
	f.running.Wait()
	commands, _, _ := e.takeCommands()
	for _, c := range commands {
		e.takeBack(c)
	}
	if f.copying {
		e.sched.EndWrite(f.writing)
	}
}

// releases returns the functions that free the tier's memory and event, after its stream was destroyed.
func (f *files) releases(dev device.Device) (all []func() error) {
	if f.copied != nil {
		all = append(all, f.copied.Destroy)
	}
	if !f.staging.IsZero() {
		all = append(all, func() error { return dev.Free(f.staging) })
	}
	return all
}
