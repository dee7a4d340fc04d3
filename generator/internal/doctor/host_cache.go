package doctor

import "reel.internal/reel/protocol"

// hostCache reports the host tier: its planned size or, of a running generator, how much of it is pinned. NVIDIA's
// open driver takes pinned memory from the kernel itself and does not ask RLIMIT_MEMLOCK, so a small limit is no
// finding. If a system refuses the memory all the same, the tier stays smaller.
func (s *System) hostCache(list []card, status *protocol.Status) []Finding {
	if running(status) {
		return pinned(status.KV)
	}
	total := int64(0)
	if c := s.card(list); c != nil && !s.onHost(list) {
		total = c.total
	}
	bytes, cut := s.HostCache(total)
	switch {
	case cut != "":
		return []Finding{warning("host cache", cut,
			"free memory, raise the memory limit of the service or container, or lower --host-cache")}
	case bytes == 0:
		return nil
	}
	return []Finding{ok("host cache", "it takes "+size(bytes)+" of this machine's memory at most, after the start")}
}

// pinned compares a running generator's host tier with the size that it grows to.
func pinned(kv protocol.KV) []Finding {
	if kv.HostBytes == 0 {
		return nil
	}
	has := int64(kv.HostPages) * kv.PageBytes
	if has < kv.HostBytes {
		return []Finding{note("host cache", size(has)+" of "+size(kv.HostBytes)+" are pinned",
			"it grows for some seconds after the start; if it stays, the log has the system's refusal: raise the limit "+
				"of memory or of locked memory, or lower --host-cache")}
	}
	return []Finding{ok("host cache", "it has "+size(has)+" of this machine's memory")}
}
