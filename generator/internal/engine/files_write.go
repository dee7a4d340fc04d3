package engine

import (
	"context"
	"errors"

	"reel.internal/reel/generator/internal/kv/store"
)

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
	if f.writing != nil {
		return nil
	}
	return e.beginWrite()
}

// beginWrite begins to copy the next page that is to be written, if there is one.
func (e *Engine) beginWrite() error {
	f := &e.files
	used := f.store.Load() != nil
	if used {
		f.writing = e.sched.BeginWrite()
	}
	if f.writing == nil {
		if !used || !e.sched.Unwritten() {
			f.endFlushes()
		}
		return nil
	}
	f.copying = true
	if err := e.memory.StorePage(e.host.stream, f.writing.Page(), f.staging); err != nil {
		return err
	}
	return e.host.stream.Record(f.copied)
}

// Flush waits until the pages that prompts have left so far are in files, or until ctx ends. It does not wait if no
// store is used.
func (e *Engine) Flush(ctx context.Context) {
	written := make(chan struct{})
	if !e.sendUnlessStopping(command{kind: flush, written: written}) {
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// sendUnlessStopping is send, but sends nothing and returns false if the engine stops: finishAll ends only the calls
// before.
func (e *Engine) sendUnlessStopping(c command) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return false
	}
	e.inbox = append(e.inbox, c)
	e.wakeup.signal()
	return true
}

// endFlushes ends the calls of Flush.
func (f *files) endFlushes() {
	for _, written := range f.flushes {
		close(written)
	}
	f.flushes = nil
}

// writeFiles writes the staged pages until writes is closed.
func (e *Engine) writeFiles(s *store.Store) {
	for p := range e.files.writes {
		e.files.awaitDisk()
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
		e.useNoStore()
	}
	e.files.writing = nil
	e.answerDrops()
}

// answerDrops answers the questions that waited for the end of a write.
func (e *Engine) answerDrops() {
	for _, q := range e.files.drops {
		e.answer(q)
	}
	e.files.drops = nil
}
