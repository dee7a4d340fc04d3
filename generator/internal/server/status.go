package server

import (
	"os"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// Status returns a snapshot of the server and its engine.
func (s *Server) Status() *protocol.Status {
	s.mu.Lock()
	p, connections, idle := s.phase, len(s.conns), s.activityIdle()
	s.mu.Unlock()
	st := &protocol.Status{
		State: p.state, Version: s.opts.Version, PID: os.Getpid(),
		Doing: p.doing(), Failure: p.failed(),
		UptimeS: time.Since(s.started).Seconds(), Progress: p.progress, Connections: connections,
		IdleS: idle.Seconds(),
	}
	if p.model != nil {
		p.model.addStatus(st)
	}
	s.counts.fill(&st.Requests)
	return st
}

// addStatus sets the fields of st about the model, its engine and its device.
func (m *Model) addStatus(st *protocol.Status) {
	stats := m.Engine.Stats()
	st.Model, st.Device, st.Limits, st.Shape = m.Name, m.Device, m.Limits, m.Shape
	st.Requests, st.KV, st.Steps = stats.Requests, stats.KV, stats.Steps
	st.Graphs, st.Reserve, st.ChatFailure = stats.Graphs, stats.Reserve, m.ChatFailure
	st.ChatDefaults, st.Cache, st.Disk = m.ChatDefaults, stats.Cache, stats.Disk
	if m.Embedding != nil {
		st.Embeddings = &m.Embedding.Embeddings
	}
	st.Drafts = stats.Drafts
	st.Identity = m.identity()
	if m.FormatState != nil {
		st.Formats = m.FormatState()
	}
	if m.Machine != nil {
		st.Machine = m.Machine()
	}
	st.Memory = m.memoryUse(stats, st.Machine)
}

// memoryUse returns the planned and the used device memory by kind. Memory of no other
// kind counts as other: of this process if Taken knows its memory, otherwise of all
// programs on the device.
func (m *Model) memoryUse(s engine.Stats, machine protocol.Machine) []protocol.MemoryUse {
	together := m.Together()
	used := map[string]int64{
		protocol.MemoryWeights: m.Shape.WeightBytes,
		protocol.MemoryKV:      s.KV.Bytes * together / int64(max(1, m.GPUs)), // pages count on all GPUs, the others on one
		protocol.MemoryArena:   s.Arena * together,
		protocol.MemoryGraphs:  s.Graphs.Bytes * together,
	}
	other := m.taken(machine.MemoryUsed)
	for _, bytes := range used {
		other -= bytes
	}
	used[protocol.MemoryOther] = max(0, other)
	list := make([]protocol.MemoryUse, len(m.Memory))
	for i, p := range m.Memory {
		list[i] = protocol.MemoryUse{Kind: p.Kind, Planned: p.Planned, Used: used[p.Kind]}
	}
	return list
}

// taken returns the bytes that this process has taken, or byDefault if they are unknown.
func (m *Model) taken(byDefault int64) int64 {
	if m.Taken != nil {
		if bytes, _ := m.Taken(); bytes > 0 {
			return bytes
		}
	}
	return byDefault
}
