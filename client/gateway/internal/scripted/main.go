// Command scripted is the generator of package plays as a program. It prints a line of JSON for
// each request that was cancelled: what was asked, and when the cancel came.
//
//	scripted SOCKET [narrow]
package main

import (
	"encoding/json"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"reel.internal/reel/client/gateway/internal/plays"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// cancelled is a line of the output.
type cancelled struct {
	Asked string  `json:"asked"`
	At    float64 `json:"at"` // Unix time in seconds
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: scripted SOCKET [narrow]")
	}
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	script := plays.Script("scripted")
	if len(os.Args) > 2 && os.Args[2] == "narrow" {
		script.Slots = 1
	}
	script.Cancelled = func(m *protocol.Generate) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(cancelled{plays.Asked(m), float64(time.Now().UnixMicro()) / 1e6}) // a test that reads misses it
	}
	fakegen.New(script).Serve(l)
}
