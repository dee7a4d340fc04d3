package server

import (
	"reel/generator/internal/engine"
	"reel/protocol"
)

// memoryUse is what was planned, and what of it is in use. The rest of what the
// machine uses is other; what this process has taken, where somebody says so, tells
// its own from other programs'.
func (m *Model) memoryUse(s engine.Stats, machine protocol.Machine) []protocol.MemoryUse {
	used := map[string]int64{protocol.MemoryWeights: m.Shape.WeightBytes, protocol.MemoryKV: s.KV.Bytes, protocol.MemoryArena: s.Arena, protocol.MemoryGraphs: s.Graphs.Bytes}
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

// taken is what this process has taken, or otherwise where nobody says so.
func (m *Model) taken(otherwise int64) int64 {
	if m.Taken != nil {
		if bytes, _ := m.Taken(); bytes > 0 {
			return bytes
		}
	}
	return otherwise
}
