package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
)

// Stream a completion to standard output.
func Example() {
	socket, stop := startGenerator()
	defer stop()

	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{Socket: socket})
	if errors.Is(err, client.ErrNoGenerator) {
		log.Fatal("start reel-generator first")
	}
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	var done client.Done
	req := client.Request{Prompt: "To be, or not to be", Temperature: new(0.0), MaxTokens: new(4), Done: &done}
	for tok, err := range c.Generate(ctx, req) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Println("…", done.FinishReason)
	// Output: To be, or not … length
}

// startGenerator starts a stand-in for a generator, which repeats the prompt.
func startGenerator() (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "reel-example-")
	if err != nil {
		log.Fatal(err)
	}
	socket = filepath.Join(dir, "generator.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	go fakegen.New(fakegen.Script{}).Serve(l)
	return socket, func() { _, _ = l.Close(), os.RemoveAll(dir) }
}
