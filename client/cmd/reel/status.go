package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// statusCommand returns the command that prints the generator's status.
func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the generator serves and does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := startProgress(a.wait)
			options := client.Options{Socket: a.socket, Wait: a.wait, OnPeer: a.stranger.meet, OnWait: p.retrying}
			status, err := client.ReadStatus(cmd.Context(), options)
			p.clear()
			w := stdout()
			if errors.Is(err, client.ErrNoGenerator) || errors.Is(err, client.ErrSleeping) {
				return showRecord(w, client.Record(client.Options{Socket: a.socket}), asJSON, err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return closedPipe(writeJSON(w, status))
			}
			return writeStatus(w, status, a.stranger.text())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// writeStatus prints a status for people. stranger, unless empty, describes a foreign
// process that serves the socket.
func writeStatus(w io.Writer, s *client.Status, stranger string) error {
	if s.Limits.Context == 0 { // the model is not known yet
		return writeRows(w, slices.Concat(stateRows(s, stranger), processRows(s),
			[][2]string{{"connections", count(uint64(s.Connections))}}))
	}
	return writeRows(w, slices.Concat(stateRows(s, stranger), modelRows(s), processRows(s), requestRows(s),
		hostRows(s.KV), diskRows(s.Disk), cacheRows(s), stepRows(s), draftRows(s.Drafts), graphRows(s.Graphs),
		limitRows(s), chatRows(s)))
}

// stateRows say what the generator does and what failed, and name a stranger that serves the socket.
func stateRows(s *client.Status, stranger string) [][2]string {
	state := s.State
	if s.Progress < 1 {
		state += fmt.Sprintf(", %.0f%%", 100*s.Progress)
	}
	if s.Doing != "" {
		state += ": " + s.Doing
	}
	rows := append([][2]string{{"state", state}}, failureRows(s.Failure)...)
	if stranger != "" {
		rows = append(rows, [2]string{"socket", stranger})
	}
	return rows
}

// modelRows describe the model and the device that runs it.
func modelRows(s *client.Status) [][2]string {
	rows := [][2]string{{"model", s.Model}, {"device", deviceText(s)}}
	if m := s.Machine; m.MemoryTotal > 0 {
		used := fmt.Sprintf("%s of %s used", size(m.MemoryUsed), size(m.MemoryTotal))
		rows = append(rows, [2]string{"memory", used})
	}
	return rows
}

// processRows describe the generator's process.
func processRows(s *client.Status) [][2]string {
	up := time.Duration(s.UptimeS * float64(time.Second)).Round(time.Second)
	return [][2]string{
		{"generator", fmt.Sprintf("%s, pid %d", s.Version, s.PID)},
		{"uptime", up.String()},
	}
}

// requestRows count clients, requests and the pages that requests use.
func requestRows(s *client.Status) [][2]string {
	return [][2]string{
		{"connections", fmt.Sprintf("%d of %d", s.Connections, s.Limits.Connections)},
		{"requests", fmt.Sprintf("%d running, %d waiting; %d finished, %d cancelled, %d failed, %d refused",
			s.Requests.Running, s.Requests.Waiting, s.Requests.Finished,
			s.Requests.Cancelled, s.Requests.Failed, s.Requests.Refused)},
		{"kv", fmt.Sprintf("%d of %d pages used, %d cached, %d tokens each, %s in all",
			s.KV.Used, s.KV.Pages, s.KV.Cached, s.KV.PageTokens, size(s.KV.Bytes))},
	}
}

// stepRows count what the engine did.
func stepRows(s *client.Status) [][2]string {
	mixed := ""
	if n := s.Steps.Mixed; n > 0 {
		mixed = fmt.Sprintf("%d mixed, ", n)
	}
	return [][2]string{
		{"steps", fmt.Sprintf("%d prefill, %d decode, %s%d tokens", s.Steps.Prefill, s.Steps.Decode, mixed, s.Steps.Tokens)},
	}
}

// limitRows say what a request may ask for, and what is kept free for further users.
func limitRows(s *client.Status) [][2]string {
	limits := fmt.Sprintf("context %d tokens, batch %d, vocabulary %d",
		s.Limits.Context, s.Limits.MaxBatch, s.Limits.Vocab)
	if s.Shape.RoPE != "" {
		limits += "; RoPE " + s.Shape.RoPE
	}
	rows := [][2]string{{"limits", limits}}
	if r := s.Reserve; r.Slots > 0 {
		rows = append(rows, [2]string{"reserve",
			fmt.Sprintf("room for further users: %d, each with up to %d tokens; %d pages",
				r.Slots, r.Tokens, r.Pages)})
	}
	return rows
}

// chatRows say what the model can be asked beside prompts, and with what defaults.
func chatRows(s *client.Status) (rows [][2]string) {
	if s.ChatFailure != "" {
		rows = append(rows, [2]string{"chat", "only prompts: " + s.ChatFailure})
	}
	if e := s.Embeddings; e != nil {
		rows = append(rows, [2]string{"embeddings", embeddingsText(e)})
	}
	rows = append(rows, formatRows(s.Formats)...)
	if d := s.ChatDefaults; d != nil {
		rows = append(rows, [2]string{"chat", fmt.Sprintf("by default temperature %g, top-k %d, top-p %g, min-p %g, "+
			"repeat-penalty %g", d.Temperature, d.TopK, d.TopP, d.MinP, d.RepeatPenalty)})
	}
	return rows
}

// embeddingsText says what vectors a model makes.
func embeddingsText(e *client.Embeddings) string {
	text := fmt.Sprintf("%d dimensions", e.Dimensions)
	if e.Least < e.Dimensions {
		text += fmt.Sprintf(", or from %d on", e.Least)
	}
	if e.Normalized {
		text += ", of length 1"
	}
	if len(e.Prompts) > 0 {
		text += "; prompts " + strings.Join(e.Prompts, ", ")
	}
	return text
}

// writeRows prints rows of a name and a text, one per line. Both are escaped as labels
// on a pipe too: the rows are for people, and programs use JSON.
func writeRows(w io.Writer, rows [][2]string) error {
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%-12s %s\n", oneLine(row[0]), oneLine(row[1]))
	}
	_, err := io.WriteString(w, b.String())
	return closedPipe(err)
}

// deviceText returns the device's kind, and its name and driver if known.
func deviceText(s *client.Status) string {
	text := s.Device
	if s.Machine.Name != "" {
		text += ": " + s.Machine.Name
	}
	if s.Machine.Driver != "" {
		text += ", driver " + s.Machine.Driver
	}
	return text
}

// hostRows describe the tier in host memory. There are none without one.
func hostRows(kv protocol.KV) [][2]string {
	if kv.HostPages == 0 {
		return nil
	}
	return [][2]string{{"host", fmt.Sprintf("%d of %d pages cached, %d of requests that moved out; %s out, %s in; "+
		"%d requests moved out, %d back", kv.HostCached, kv.HostPages, kv.HostSequences,
		size(int64(kv.Stored)*kv.PageBytes), size(int64(kv.Loaded)*kv.PageBytes), kv.MovedOut, kv.MovedIn)}}
}

// diskRows describe the pages in files. There are none without a directory for them.
func diskRows(d protocol.Disk) [][2]string {
	switch d.State {
	case "":
		return nil
	case protocol.DiskOpening:
		return [][2]string{{"disk", "not used yet: the generator reads all weights again first"}}
	}
	text := fmt.Sprintf("%s pages, %s of %s; %s read for %s, %s written, %s", count(uint64(d.Pages)), size(d.Bytes),
		size(d.MaxBytes), count(d.Read), plural(d.Hits, "prompt"), count(d.Written), plural(d.Errors, "error"))
	if d.State == protocol.DiskOff {
		text = "not used any more: the generator's log has the cause; " + text
	}
	return [][2]string{{"disk", text}}
}

// formatRows describe the program that follows formats, unless it waits for the first of them.
func formatRows(f protocol.Formats) [][2]string {
	text := fmt.Sprintf("%d open, %s of reel-format", f.Open, plural(uint64(f.Restarts), "restart"))
	switch f.State {
	case "", protocol.FormatsIdle:
		return nil
	case protocol.FormatsMissing:
		text = "refused: reel-format is not installed beside reel-generator"
	case protocol.FormatsFailed:
		text = "reel-format has ended, and is started again: " + f.Reason
	}
	return [][2]string{{"formats", text}}
}

// plural returns a number of things.
func plural(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return count(n) + " " + thing
}

// cacheRows describe what the prefix cache did. There are none while the model loads, and for
// older generators that don't report it.
func cacheRows(s *client.Status) [][2]string {
	c, whose := s.Cache, "each user's own"
	switch c.Scope {
	case "":
		return nil
	case protocol.ScopeOff:
		return [][2]string{{"cache", "off"}}
	case protocol.ScopeAll:
		whose = "shared by all users"
	}
	text := fmt.Sprintf("%s; %d of %d prompts hit, %s of %s prompt tokens cached; %d pages evicted",
		whose, c.Hits, c.Requests, count(c.CachedTokens), count(c.PromptTokens), s.KV.Evicted)
	if n := s.Steps.Rereads; n > 0 {
		text += "; " + plural(n, "answer") + " read again"
	}
	return [][2]string{{"cache", text}}
}

// graphRows describes the captured graphs. It returns none while the model loads, and
// for older generators that don't report them.
func graphRows(g protocol.GraphPool) [][2]string {
	if g == (protocol.GraphPool{}) {
		return nil
	}
	rows := [][2]string{
		{"graphs", fmt.Sprintf("%d of %d live, %s of %s; roller %s, %d capture requests",
			g.Live, g.MaxGraphs, size(g.Bytes), size(g.Budget), g.Roller, g.CaptureRequests)},
		{"captures", fmt.Sprintf("%d at start, %d rolled, %d failed, %d refused; %d evicted",
			g.Precaptured, g.Rolled, g.Failed, g.Refused, g.Evicted)},
		{"replays", fmt.Sprintf("%d exact, %d padded; %d steps eager", g.Exact, g.Padded, g.Eager)},
	}
	if g.CaptureS > 0 {
		rows = append(rows, [2]string{"start", fmt.Sprintf("%d graphs in %.2f s, median %.2f ms, %s each",
			g.Precaptured, g.CaptureS, g.CaptureMedianMS, size(g.GraphBytes))})
	}
	if g.Failure != "" {
		rows = append(rows, [2]string{"failure", g.Failure})
	}
	return rows
}

// count formats a number with a comma for each thousand.
func count(n uint64) string { return humanize.Comma(int64(min(n, math.MaxInt64))) }

// size formats a number of bytes with three digits, as in 11.2 GiB.
func size(bytes int64) string { return humanize.IBytesN(uint64(max(bytes, 0)), 3) }
