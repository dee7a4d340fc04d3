package engine

import (
	"reel.internal/reel/graphs"
	"reel.internal/reel/protocol"
)

// Stats is a snapshot of the engine for status. Of Requests it sets only Running and Waiting; the server counts
// how requests end.
type Stats struct {
	Requests protocol.Requests
	KV       protocol.KV
	Steps    protocol.Steps
	Graphs   protocol.GraphPool
	Reserve  protocol.Reserve
	Cache    protocol.Cache
	Disk     protocol.Disk
	Drafts   protocol.Drafts
	Arena    int64 // bytes of device memory that steps work in, without the KV pool
}

// Stats returns a snapshot. It is safe from any goroutine.
func (e *Engine) Stats() Stats {
	g := e.pool.Stats()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Requests.Waiting = e.waiting
	s.Cache.Scope = e.opts.CacheScope.String()
	s.Graphs = graphStatus(g)
	s.Graphs.GraphBytes = e.graphBytes
	s.Drafts = e.drafted.status(e.opts)
	if s.Disk.State != "" {
		e.files.fill(&s.Disk)
	}
	return s
}

// fill sets the counts of the store that was used last.
func (f *files) fill(d *protocol.Disk) {
	s := f.counted.Load()
	if s == nil {
		return
	}
	c := s.Counts()
	if c.Off {
		d.State = protocol.DiskOff
	}
	d.Bytes, d.MaxBytes, d.Pages, d.Read, d.Written, d.Errors = c.Bytes, s.Bytes, c.Pages, c.Read, c.Written, c.Errors
}

// setDisk notes whether the store is used.
func (e *Engine) setDisk(state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Disk.State = state
}

// countFileHit counts a request for which pages were read.
func (e *Engine) countFileHit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Disk.Hits++
}

func graphStatus(g graphs.Stats) protocol.GraphPool {
	return protocol.GraphPool{Live: g.Live, MaxGraphs: g.MaxGraphs, Bytes: g.Bytes, Budget: g.Budget,
		Precaptured: g.Precaptured, Rolled: g.Rolled, Evicted: g.Evicted, Failed: g.Failed, Failure: g.Failure,
		Refused: g.Refused, Exact: g.Exact, Padded: g.Padded, Eager: g.Eager, CaptureRequests: g.CaptureRequests,
		Roller: g.Roller, CaptureS: g.CaptureTime.Seconds(), RollS: g.RollTime.Seconds(),
		CaptureMedianMS: milliseconds(g.CaptureP50)}
}

// countStep counts a completed step, in the engine's statistics and in those of each sequence that it served.
func (e *Engine) countStep(step stepInFlight) {
	for _, q := range step.batch.Served {
		countPlan(&q.Owner.(*sequence).graphs, step.plan)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case step.batch.Reread != nil:
		e.stats.Steps.RereadTokens += uint64(len(step.batch.Step.Rows))
		return
	case len(step.batch.Served) == 0: // a heartbeat's
		return
	}
	switch {
	case step.batch.Generated > 0:
		e.stats.Steps.Mixed++
	case step.batch.Prefill:
		e.stats.Steps.Prefill++
	default:
		e.stats.Steps.Decode++
	}
	if !e.opts.Embeddings {
		e.stats.Steps.Tokens += uint64(len(step.batch.Sampled))
	}
	countPlan(&e.stats.Steps.Graphs, step.plan)
}

// countPrompt counts a prompt that looked for cached pages, at its first token.
func (e *Engine) countPrompt(s *sequence) {
	if s.scheduled.Scope == "" {
		return
	}
	cached := s.scheduled.Cached()
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.stats.Cache
	c.Requests++
	if cached > 0 {
		c.Hits++
	}
	c.PromptTokens += uint64(len(s.request.Tokens))
	c.CachedTokens += uint64(cached)
}

// countPlan counts how a step was launched.
func countPlan(g *protocol.Graphs, p graphs.Plan) {
	switch {
	case p.Kind == graphs.Eager:
		g.Eager++
	case p.Kind == graphs.Padded:
		g.Padded++
	case p.Rolled():
		g.Rolled++
	default:
		g.Precaptured++
	}
}

// publish updates the counts that Stats returns.
func (e *Engine) publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot()
}

// snapshot does the work of publish for a caller that holds e.mu.
func (e *Engine) snapshot() {
	e.stats.Requests.Running, e.stats.Steps.HostUS = e.sched.Running(), uint64(e.worked.Microseconds())
	e.stats.KV.Used = e.opts.Pages - e.sched.FreePages()
	c, movedOut, movedIn := e.sched.Cache()
	k := &e.stats.KV
	k.Cached, k.Evicted, k.HostPages, k.HostCached, k.HostSequences = c.Cached, c.Evicted, c.HostPages, c.HostCached,
		c.HostSequence
	k.Stored, k.Loaded, k.MovedOut, k.MovedIn = e.host.stored, e.host.loaded, movedOut, movedIn
}
