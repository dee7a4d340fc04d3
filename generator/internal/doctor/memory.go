package doctor

import "reel/protocol"

// memory looks at what bounds the host's memory, if the generator is to compute on
// the host and does not run yet. The limits are those of this process: a service
// has its own, which `systemctl show` lists.
func (s *System) memory(list []card, status *protocol.Status) []Finding {
	onHost := s.Device == "host" || s.Device == "auto" && s.card(list) == nil
	if !onHost || running(status) {
		return nil
	}
	found, err := s.HostMemory()
	if err != nil {
		const next = "raise the limit or lower --max-seq-len: reel-generator plan --device host says what fits"
		return []Finding{{"memory", Failure, err.Error(), next}}
	}
	if found == "" {
		return nil
	}
	return []Finding{{"memory", OK, found, ""}}
}
