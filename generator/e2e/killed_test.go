//go:build linux

package e2e

import (
	"io"
	"os"
	"sync"
	"syscall"
	"testing"

	"reel/protocol"
)

// vanish breaks a connection after its first token.
func (g *generator) vanish() {
	p := g.peer()
	p.send(g.endless(1))
	expect[*protocol.Token](p)
	_ = p.conn.Close()
}

// killed starts a client process and kills it after its first output.
func (g *generator) killed() {
	read, write, err := os.Pipe()
	if err != nil {
		g.t.Fatal(err)
	}
	p := g.reel("--max-tokens", "1000", "--ignore-eos", "--temperature", "0", "--", "ROMEO:")
	p.cmd.Stdout = write
	p.start()
	_ = write.Close()
	if _, err := io.ReadFull(read, make([]byte, 1)); err != nil {
		g.t.Fatal(err, p.stderr.String())
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	_ = read.Close()
}

// inParallel calls do n times, 32 at once.
func inParallel(n int, do func()) {
	var group sync.WaitGroup
	turns := make(chan struct{}, 32)
	for range n {
		turns <- struct{}{}
		group.Go(func() { do(); <-turns })
	}
	group.Wait()
}

// 1,000 clients that are killed in the middle of a completion leave nothing
// behind: no connection, request, page, descriptor, thread or goroutine.
func TestKilledClients(t *testing.T) {
	untouched := serve(t)
	untouched.vanish()
	untouched.quiet()

	g := serve(t)
	inParallel(scaled(64, 4), g.vanish)
	g.quiet()
	descriptors, threads := g.entries("fd"), g.entries("task")
	inParallel(scaled(980, 16), g.vanish)
	for range scaled(20, 2) {
		g.killed()
	}
	g.quiet()
	g.eventually("descriptors are back", func() bool { return g.entries("fd") <= descriptors })
	if n := g.entries("task"); n > threads+4 { // Go keeps threads, and makes one where a thread blocks
		t.Errorf("%d threads, %d before", n, threads)
	}
	s := g.status()
	if want := uint64(scaled(64+980+20, 4+16+2)); s.Requests.Cancelled != want || s.Requests.Failed != 0 {
		t.Errorf("%+v, want %d cancelled", s.Requests, want)
	}
	g.works()
	g.quiet()
	// The runtime has goroutines of its own for a moment, as after a collection.
	before := untouched.goroutines()
	g.eventually("goroutines are those where one client was killed", func() bool { return g.goroutines() <= before })
}
