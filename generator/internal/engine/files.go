package engine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reel.internal/reel/generator/internal/kv"
	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// files is the tier of pages in files. One goroutine reads for requests, before they are added to the scheduler, and
// one writes, one page at a time: the page is copied to staging beside the steps, as to the host tier. The engine's
// thread never waits for the disk.
type files struct {
	store   atomic.Pointer[store.Store] // nil before UseStore, and after an error of the disk
	counted atomic.Pointer[store.Store] // the one that was used last
	opened  *store.Store                // that UseStore was called with; guarded by the engine's mu
	early   map[User]bool               // users who dropped their pages before that; likewise
	none    bool                        // no store will be opened; likewise
	waiting []*sequence                 // in the order in which their pages will be read
	reading bool                        // pages are being read
	reads   chan *pageRead
	writes  chan store.Page
	drops   []*question     // that wait for the page that is being written
	flushes []chan struct{} // closed when all pages are written
	ending  atomic.Bool     // reads are given up
	running sync.WaitGroup

	staging device.Buffer
	mapped  *device.Mapped
	copied  device.Event // the copy to staging
	copying bool
	writing *kv.Node // being copied or written

	hang func() // called before each read and write, in tests; nil: nothing is
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
func (e *Engine) UseStore(s *store.Store) {
	e.mu.Lock()
	early := e.files.early
	e.files.opened, e.files.early, e.files.none = s, nil, s == nil
	e.mu.Unlock()
	if s != nil {
		for user := range early {
			e.stored(s, user, true)
		}
	}
	e.send(command{kind: useStore, store: s})
}

// useStore begins to use a store, on the engine's thread.
func (e *Engine) useStore(s *store.Store) (err error) {
	f := &e.files
	if s == nil || e.host.stream == nil {
		e.useNoStore()
		return nil
	}
	if f.copied, err = e.dev.NewEvent(); err != nil {
		return err
	}
	f.staging, f.mapped, err = e.dev.Pinned(e.memory.PageBytes())
	if errors.Is(err, device.ErrSticky) {
		return err
	}
	if err != nil {
		e.warn("the cache directory is not used: " + err.Error())
		e.useNoStore()
		return nil
	}
	f.reads, f.writes = make(chan *pageRead, 1), make(chan store.Page, 1)
	f.running.Go(e.readFiles)
	f.running.Go(func() { e.writeFiles(s) })
	f.store.Store(s)
	f.counted.Store(s)
	e.setDisk(protocol.DiskUsed)
	return nil
}

// useNoStore ends the writing of pages: there is no store, or no longer.
func (e *Engine) useNoStore() {
	e.files.store.Store(nil)
	e.sched.WriteFiles(false)
	e.setDisk(protocol.DiskOff)
}

// storedPages returns the files of the pages that a prompt begins with. The last prompt token is always computed.
func (e *Engine) storedPages(s *sequence) []store.ID {
	if f := e.files.store.Load(); f != nil && s.scheduled.Scope != "" {
		return f.Longest(s.scheduled.Scope, s.scheduled.Prompt[:len(s.scheduled.Prompt)-1])
	}
	return nil
}

// stored returns the number of pages in files that a user's prompts can find, after dropping them if asked to.
func (e *Engine) stored(s *store.Store, user User, drop bool) int {
	if e.opts.CacheScope == ScopeAll {
		if drop {
			s.DropAll()
		}
		pages, _ := s.Usage()
		return pages
	}
	scope := userScope(user)
	if drop && user.Name == "" {
		s.Drop(uint64(user.UID), scope, scopeAll) // which the directory may have of an earlier start
	} else if drop {
		s.Drop(uint64(user.UID), scope)
	}
	return s.UsageOf(scope)
}

// dropUnused drops a user's pages in files while the store is not used: at once if it is open, else when it will be.
func (e *Engine) dropUnused(user User) {
	e.mu.Lock()
	s := e.files.opened
	if s == nil && e.opts.Files && !e.files.none {
		if e.files.early == nil {
			e.files.early = map[User]bool{}
		}
		e.files.early[user] = true
	}
	e.mu.Unlock()
	if s != nil {
		e.stored(s, user, true)
	}
}

// maxEarly bounds the users who drop their pages before the store is open. A uid has any number of names.
const maxEarly = 1024

// mayDrop reports whether a further drop can be kept until the store is open, if it must be. The caller holds the
// engine's mu.
func (f *files) mayDrop(user User) bool { return f.early[user] || len(f.early) < maxEarly }

// add adds a sequence to the scheduler, after the pages of its prompt that have files were read.
func (e *Engine) add(s *sequence) {
	if len(s.stored) > 0 {
		e.files.waiting = append(e.files.waiting, s)
		e.readNext()
		return
	}
	e.schedule(s)
}

// schedule adds a sequence to the scheduler.
func (e *Engine) schedule(s *sequence) {
	s.stored = nil
	if err := e.sched.Add(&s.scheduled); err != nil {
		e.end(s, "", ErrBusy)
	}
}

// readNext begins the next read, unless one is under way. A read gets its places only now: if the disk hangs, a few
// are taken and not those of all requests that wait for it.
func (e *Engine) readNext() {
	f := &e.files
	for !f.reading && len(f.waiting) > 0 {
		s := f.waiting[0]
		f.waiting = slices.Delete(f.waiting, 0, 1)
		if f.reading = e.beginRead(s); !f.reading {
			e.schedule(s)
		}
	}
}

// forget takes a request that ends off those whose pages will be read.
func (f *files) forget(s *sequence) {
	if len(s.stored) > 0 { // it was not scheduled yet
		f.waiting = slices.DeleteFunc(f.waiting, func(other *sequence) bool { return other == s })
	}
}

// beginRead begins to read the next pages of a prompt. It returns false if there is nothing to read, or no place to
// read it to. Each page is read at most once: if it gave way meanwhile, it is computed.
func (e *Engine) beginRead(s *sequence) bool {
	f, from := e.files.store.Load(), e.sched.Found(&s.scheduled)
	if f == nil || from < s.read || from >= len(s.stored) {
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
			e.files.awaitDisk()
			if e.files.ending.Load() || r.store.Read(id, r.memory[i]) != nil {
				break // the pages after it are computed
			}
			r.good = append(r.good, id)
		}
		e.send(command{kind: pagesRead, read: r})
	}
}

// finishRead adds the pages that were read to the cache. Further ones are read when it is the sequence's turn again.
func (e *Engine) finishRead(r *pageRead) {
	s := r.sequence
	e.sched.FinishRead(&s.scheduled, r.from, r.places, r.good)
	if len(r.good) > 0 && s.read == 0 {
		e.countFileHit()
	}
	s.read = r.from + len(r.places)
	switch {
	case e.sequences[s.handle] != s: // cancelled
	case len(r.good) < len(r.places) || s.read == len(s.stored):
		e.schedule(s)
	default:
		e.files.waiting = append(e.files.waiting, s)
	}
	e.files.reading = false
	e.readNext()
}

// awaitDisk lets a test make the disk slow.
func (f *files) awaitDisk() {
	if f.hang != nil {
		f.hang()
	}
}

// diskTime is how long the end of the engine waits for a call of the disk. One that hangs may never return.
const diskTime = time.Second

// endFiles waits for the goroutines and gives back the pages and places that they use. It returns false if the disk
// hangs: then a goroutine may still use their memory.
func (e *Engine) endFiles() (ended bool) {
	f := &e.files
	if f.reads == nil {
		return true
	}
	f.store.Store(nil)
	f.ending.Store(true)
	close(f.reads)
	close(f.writes)
	ended = f.endsWithin(diskTime)
	commands, _, _ := e.takeCommands()
	for _, c := range commands {
		e.takeBack(c)
	}
	if f.copying {
		e.sched.EndWrite(f.writing)
	}
	return ended
}

// endsWithin waits for the goroutines and returns whether they ended in time.
func (f *files) endsWithin(most time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		f.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(most):
		return false
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
