package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"reel/client"
	"reel/protocol"
)

// topView makes views of statuses, and rates of two that follow each other.
type topView struct {
	last *client.Status
	rate []float64 // tokens a second, of the views so far
}

const (
	barWidth   = 24
	rateLength = 40 // views of which the rate is drawn
)

// next is the view of a status, or of the reason why there is none.
func (v *topView) next(s *client.Status, err error) []string {
	if err != nil {
		v.last, v.rate = nil, nil
		return []string{"no generator answers: " + err.Error(), "it is waited for; q ends"}
	}
	lines := heading(s)
	if s.Model != "" && s.State != protocol.StateLoading {
		lines = append(lines, "")
		lines = append(lines, loads(s)...)
		lines = append(lines, "")
		lines = append(lines, v.rates(s)...)
		lines = append(lines, memoryLines(s)...)
	}
	v.last = s
	return lines
}

// heading says what runs, and how it is.
func heading(s *client.Status) []string {
	up := time.Duration(s.UptimeS * float64(time.Second)).Round(time.Second)
	state := s.State
	if s.Progress < 1 {
		state += fmt.Sprintf(" %.0f%%", 100*s.Progress)
	}
	what := "Reel"
	if s.Model != "" {
		what = s.Model + " on " + deviceText(s)
	}
	lines := []string{what, fmt.Sprintf("%s, up %v, generator %s, pid %d, connections %d", state, up, s.Version, s.PID, s.Connections)}
	if s.Doing != "" {
		lines = append(lines, s.Doing)
	}
	if f := s.Failure; f != nil {
		lines = append(lines, f.Code+": "+f.Message, f.Hint)
	}
	return lines
}

// loads are what is full, and how far.
func loads(s *client.Status) []string {
	r, g := s.Requests, s.Graphs
	return []string{
		row("requests", fmt.Sprintf("%d waiting of %d; %d finished, %d cancelled, %d failed, %d refused",
			r.Waiting, s.Limits.Queue, r.Finished, r.Cancelled, r.Failed, r.Refused)),
		row("batch", gauge(r.Running, s.Limits.MaxBatch+s.Reserve.Places, "requests run")),
		row("kv", gauge(s.KV.Used, s.KV.Pages, fmt.Sprintf("pages of %d tokens", s.KV.PageTokens))),
		row("graphs", gauge(g.Live, g.MaxGraphs, fmt.Sprintf("live, %.1f of %.1f MiB", mib(g.Bytes), mib(g.Budget)))),
	}
}

// row is a line of a name and what it is.
func row(name, text string) string { return fmt.Sprintf("%-11s%s", name, text) }

// gauge draws how much of something is in use.
func gauge(used, of int, what string) string {
	full := 0
	if of > 0 {
		full = min(barWidth, int(math.Ceil(barWidth*float64(used)/float64(of))))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf("  %d of %d %s", used, of, what)
}

// rates are what happened since the last view, a second. A generator that was
// started anew has no last view.
func (v *topView) rates(s *client.Status) []string {
	before, seconds := v.last, 0.0
	if before != nil && before.PID == s.PID {
		seconds = s.UptimeS - before.UptimeS
	}
	if seconds <= 0 {
		return []string{row("tokens/s", "-"), row("steps/s", "-"), row("launched", "-"), row("roller", rollerText(s.Graphs))}
	}
	per := func(now, then uint64) float64 { return float64(now-then) / seconds }
	tokens := per(s.Steps.Tokens, before.Steps.Tokens)
	v.rate = append(v.rate, tokens)
	v.rate = v.rate[max(0, len(v.rate)-rateLength):]
	return []string{
		row("tokens/s", fmt.Sprintf("%-10.1f%s", tokens, spark(v.rate))),
		row("steps/s", fmt.Sprintf("%.1f prefill, %.1f decode", per(s.Steps.Prefill, before.Steps.Prefill), per(s.Steps.Decode, before.Steps.Decode))),
		row("launched", shares(s.Graphs, before.Graphs)),
		row("roller", rollerText(s.Graphs)),
	}
}

// shares are the steps between two views by how they were launched.
func shares(now, then protocol.GraphPool) string {
	exact, padded, eager := now.Exact-then.Exact, now.Padded-then.Padded, now.Eager-then.Eager
	all := float64(exact + padded + eager)
	if all == 0 {
		return "no steps"
	}
	return fmt.Sprintf("%.0f%% exact, %.0f%% padded, %.0f%% eager", 100*float64(exact)/all, 100*float64(padded)/all, 100*float64(eager)/all)
}

// rollerText says what the roller does and has done.
func rollerText(g protocol.GraphPool) string {
	text := fmt.Sprintf("%s; %d rolled, %d evicted", g.Roller, g.Rolled, g.Evicted)
	if g.Failed > 0 {
		text += fmt.Sprintf(", %d captures failed", g.Failed)
	}
	if g.Failure != "" {
		text += ": " + g.Failure
	}
	return text
}

// spark draws values as heights, against the greatest.
func spark(values []float64) string {
	const heights = "▁▂▃▄▅▆▇█"
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		level := 0
		if most > 0 {
			level = min(7, int(8*v/most))
		}
		b.WriteRune([]rune(heights)[level])
	}
	return b.String()
}

// memoryLines is the device's memory by kind, against the plan.
func memoryLines(s *client.Status) []string {
	if s.Machine.MemoryTotal == 0 {
		return nil
	}
	lines := []string{"", row("memory", fmt.Sprintf("%.1f of %.1f GiB used on the device", mib(s.Machine.MemoryUsed)/1024, mib(s.Machine.MemoryTotal)/1024))}
	for _, m := range s.Memory {
		lines = append(lines, row("  "+m.Kind, fmt.Sprintf("%9.1f MiB of %9.1f planned", mib(m.Used), mib(m.Planned))))
	}
	return lines
}
