package client

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// TestWaitingFramesTakeNoMemory: of requests that wait for the connection none has its frame yet. A gateway sends the
// prompt of one body once for each choice.
func TestWaitingFramesTakeNoMemory(t *testing.T) {
	prompt := strings.Repeat("x", 1<<20)
	c := &Client{cause: errors.New("lost")}
	c.sending.Lock()
	before := heap()
	var waiting sync.WaitGroup
	for range 16 {
		waiting.Go(func() { _ = c.write(&protocol.Generate{Prompt: &prompt}, func() {}) })
	}
	time.Sleep(100 * time.Millisecond)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("16 waiting requests of 1 MiB take %d bytes", grown)
	}
	c.sending.Unlock()
	waiting.Wait()
}
