package doctor

import (
	"context"
	"fmt"
	"strings"

	"reel.internal/reel/protocol"
)

// vram compares the model's need of GPU memory with the memory that is free, or, for a
// running generator, the memory in use with its plan.
func (s *System) vram(ctx context.Context, list []card, status *protocol.Status) []Finding {
	c := s.card(list)
	total := int64(0)
	if c != nil {
		total = c.total
	}
	needs, err := s.Plan(total)
	if err != nil {
		return []Finding{failure("model", err.Error(), "see reel-generator plan for the sizes that fit")}
	}
	var all []Finding
	if !s.onHost(list) {
		all = []Finding{ok("model", "it takes "+size(needs)+" of a GPU at most")}
	}
	switch {
	case running(status):
		return append(all, planned(status)...)
	case c == nil || s.onHost(list):
		return all
	}
	return append(all, s.free(ctx, *c, needs))
}

// running reports whether a generator runs and has its memory.
func running(status *protocol.Status) bool {
	return status != nil && len(status.Memory) > 0
}

// free compares the model's need with a GPU's free memory.
func (s *System) free(ctx context.Context, c card, needs int64) Finding {
	found := fmt.Sprintf("%s: %s of %s are free", c.name, size(c.total-c.used), size(c.total))
	if needs <= c.total-c.used {
		return ok("vram", found)
	}
	f := warning("vram", found+", the model takes "+size(needs)+" at most",
		"the generator takes a smaller KV cache; lower --max-seq-len or --max-batch to choose its size")
	if programs := s.otherPrograms(ctx); programs != "" {
		f.Found += "; others have " + programs
		f.Next = "end those programs; or: " + f.Next
	}
	return f
}

// otherPrograms lists the programs that compute on GPUs, except generators: on those with these indices, or on all.
func (s *System) otherPrograms(ctx context.Context, indices ...string) string {
	args := []string{"--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"}
	if len(indices) > 0 {
		args = append(args, "--id="+strings.Join(indices, ","))
	}
	out, err := s.Run(ctx, "nvidia-smi", args...)
	if err != nil {
		return ""
	}
	var list []string
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), ", ")
		if len(cells) == 3 && !strings.HasSuffix(cells[1], "reel-generator-cuda") {
			list = append(list, fmt.Sprintf("%s (pid %s) %s", cells[1], cells[0], size(number(cells[2])<<20)))
		}
	}
	return strings.Join(list, ", ")
}

// slack is the number of bytes that a kind of memory may exceed its plan by: drivers round
// sizes up.
const slack = 64 << 20

// planned compares a running generator's memory with its plan. The generator takes all
// memory at its start, so any growth beyond the plan is a leak; fragmentation cannot occur.
func planned(status *protocol.Status) []Finding {
	var parts []string
	var over []Finding
	check := "vram"
	if status.Device == "host" {
		check = "memory"
	}
	for _, m := range status.Memory {
		if m.Used == 0 && m.Planned == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s of %s", m.Kind, size(m.Used), size(m.Planned)))
		if m.Used <= m.Planned+slack {
			continue
		}
		next := "watch it with reel-generator vram --watch; if it keeps growing, " +
			"report that with its output and the log"
		if m.Kind == protocol.MemoryOther {
			next = "see nvidia-smi for other programs on the GPU; if there are none and it keeps growing: " + next
		}
		found := fmt.Sprintf("%s takes %s, planned were %s", m.Kind, size(m.Used), size(m.Planned))
		over = append(over, warning(check, found, next))
	}
	if len(over) > 0 {
		return over
	}
	return []Finding{ok(check, "as planned: "+strings.Join(parts, ", "))}
}
