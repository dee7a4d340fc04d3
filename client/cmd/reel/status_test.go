package main

import (
	"strings"
	"testing"

	"reel.internal/reel/protocol"
)

// A status names what is wrong with the program that follows formats, and nothing while it waits for the first.
func TestFormatRows(t *testing.T) {
	for _, c := range []struct {
		formats protocol.Formats
		want    string
	}{
		{protocol.Formats{}, ""},
		{protocol.Formats{State: protocol.FormatsIdle}, ""},
		{protocol.Formats{State: protocol.FormatsRunning, Open: 1}, "1 open, 0 restarts"},
		{protocol.Formats{State: protocol.FormatsMissing}, "not installed"},
		{protocol.Formats{State: protocol.FormatsFailed, Reason: "no memory"}, "again: no memory"},
	} {
		rows := formatRows(c.formats)
		if c.want == "" && len(rows) > 0 || c.want != "" && (len(rows) != 1 || !strings.Contains(rows[0][1], c.want)) {
			t.Errorf("%+v: %v, want %q", c.formats, rows, c.want)
		}
	}
}
