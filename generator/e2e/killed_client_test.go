//go:build linux

package e2e

import (
	"io"
	"os"
	"sync"
	"testing"

	"reel.internal/reel/protocol"
)

// vanish closes a connection after its first token.
func (g *generator) vanish() {
	p := g.peer()
	p.send(g.endless(1))
	expect[*protocol.Token](p)
	_ = p.conn.Close()
}

// killed starts a client process and kills it after its first output. A machine that stalls
// may let the client come to its end first; then there is another.
func (g *generator) killed() {
	for range 10 {
		if g.killedInTime() {
			return
		}
	}
	g.t.Fatal("ten clients ended before they were killed")
}

func (g *generator) killedInTime() bool {
	read, write, err := os.Pipe()
	if err != nil {
		g.t.Fatal(err)
	}
	defer read.Close()
	p := g.reel("--max-tokens", "1000", "--ignore-eos", "--temperature", "0", "--", "ROMEO:")
	p.cmd.Stdout = write
	p.start()
	_ = write.Close()
	if _, err := io.ReadFull(read, make([]byte, 1)); err != nil {
		g.t.Fatal(err, p.stderr.String())
	}
	err = p.cmd.Process.Kill()
	<-p.exited
	return err == nil && p.cmd.ProcessState.ExitCode() < 0
}

// inParallel calls do n times, 32 at once.
func inParallel(n int, do func()) {
	var group sync.WaitGroup
	running := make(chan struct{}, 32)
	for range n {
		running <- struct{}{}
		group.Go(func() { do(); <-running })
	}
	group.Wait()
}

// 1,000 clients that are killed during a completion leave no connection, request, page, descriptor, thread or
// goroutine in the generator.
func TestKilledClients(t *testing.T) {
	t.Parallel()
	untouched := serve(t)
	untouched.vanish()
	untouched.quiet()

	g := afterKilledClients(t)
	before := untouched.goroutines()
	// Two goroutines of the connection that asked for the status may be left. The runtime may have some of its own for a
	// moment, as after a collection. A look ends the generator, so the next one is at another.
	for look := 1; g.goroutines() > before+2; look++ {
		if look == 3 {
			t.Fatalf("each of %d generators has more than %d goroutines and two, as after one killed client: %s", look,
				before, g.stderr.String())
		}
		g = afterKilledClients(t)
	}
}

// afterKilledClients returns a generator whose 1,000 clients were killed, and which has nothing left of them.
func afterKilledClients(t *testing.T) *generator {
	t.Helper()
	g := serve(t)
	inParallel(scaled(64, 4), g.vanish)
	g.quiet()
	descriptors, threads := g.entries("fd"), g.entries("task")
	inParallel(scaled(980, 16), g.vanish)
	killed := scaled(20, 2)
	for range killed {
		g.killed()
	}
	g.quiet()
	g.eventually("descriptors are back", func() bool { return g.entries("fd") <= descriptors })
	if n := g.entries("task"); n > threads+8 { // Go keeps threads, and starts another when one blocks
		t.Errorf("%d threads, %d before", n, threads)
	}
	s := g.status()
	// A machine that stalls may end a completion before its client, which has not read all of it, is killed.
	vanished, r := uint64(scaled(64+980, 4+16)), s.Requests
	if want := vanished + uint64(killed); r.Cancelled < vanished || r.Cancelled > want || r.Cancelled+r.Finished < want ||
		r.Failed != 0 {
		t.Errorf("%+v, want %d cancelled, of which at most %d came to their end", r, want, killed)
	}
	g.works()
	g.quiet()
	return g
}
