package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestUnreadBodies: a body that does not come in time is told from a broken one, and names no path of this machine.
func TestUnreadBodies(t *testing.T) {
	path := &net.UnixAddr{Name: "/run/reel/gateway.sock", Net: "unix"}
	late := &net.OpError{Op: "read", Net: "unix", Source: path, Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{{fmt.Errorf("a body: %w", late), http.StatusRequestTimeout, "request_timeout"},
		{errors.New("unexpected EOF"), http.StatusBadRequest, "unread_body"},
		{&http.MaxBytesError{Limit: 7}, http.StatusRequestEntityTooLarge, "request_too_large"}} {
		e := asAPIError(unread(c.err))
		if e.status != c.status || e.code != c.code || strings.Contains(e.message, "/run") {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}
