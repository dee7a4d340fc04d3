package doctor

import "reel.internal/reel/protocol"

// hostMemory checks the bounds on host memory, if the generator is to compute on the host
// and does not run yet. They are this process's bounds: a service has its own, which
// `systemctl show` lists.
func (s *System) hostMemory(list []card, status *protocol.Status) []Finding {
	if !s.onHost(list) || running(status) {
		return nil
	}
	found, err := s.HostMemory()
	if err != nil {
		return []Finding{failure("memory", err.Error(),
			"raise the limit or lower --max-seq-len: reel-generator plan --device host says what fits")}
	}
	if found == "" {
		return nil
	}
	return []Finding{ok("memory", found)}
}

// onHost reports whether the generator is to compute on the host.
func (s *System) onHost(list []card) bool {
	return s.Device == "host" || s.Device == "auto" && s.card(list) == nil
}
