package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"reel/protocol"
)

// vram goes through what is to be asked where memory is short: what the model
// needs, what is there, who else has some, whether what was planned is kept.
func (s *System) vram(ctx context.Context, list []card, status *protocol.Status) []Finding {
	c := s.card(list)
	total := int64(0)
	if c != nil {
		total = c.total
	}
	needs, err := s.Plan(total)
	if err != nil {
		return []Finding{{"model", Failure, err.Error(), "see reel-generator plan, which says what fits which memory"}}
	}
	all := []Finding{{"model", OK, "it takes " + gib(needs) + " of a GPU at most", ""}}
	if running(status) {
		return append(all, s.planned(status)...)
	}
	if c == nil {
		return all
	}
	return append(all, s.free(ctx, *c, needs))
}

// running tells whether a generator has its memory.
func running(status *protocol.Status) bool {
	return status != nil && len(status.Memory) > 0
}

// free compares what the model needs with what a GPU has left.
func (s *System) free(ctx context.Context, c card, needs int64) Finding {
	has := fmt.Sprintf("%s: %s of %s are free", c.name, gib(c.total-c.used), gib(c.total))
	if needs <= c.total-c.used {
		return Finding{"vram", OK, has, ""}
	}
	f := Finding{"vram", Warning, has + ", the model takes " + gib(needs) + " at most", "the generator takes a smaller KV cache; lower --max-seq-len or --max-batch to say which"}
	if others := s.others(ctx); others != "" {
		f.Found, f.Next = f.Found+"; others have "+others, "end those programs; or: "+f.Next
	}
	return f
}

// others are the programs that compute on GPUs, beside generators.
func (s *System) others(ctx context.Context) string {
	out, err := s.Run(ctx, "nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
	if err != nil {
		return ""
	}
	var list []string
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), ", ")
		if len(cells) == 3 && !strings.HasSuffix(cells[1], "reel-generator-cuda") {
			list = append(list, fmt.Sprintf("%s (pid %s) %s MiB", cells[1], cells[0], cells[2]))
		}
	}
	return strings.Join(list, ", ")
}

// slack is how much more than its plan a kind of memory may take: what a driver
// rounds up to.
const slack = 64 << 20

// planned compares a running generator's memory with its plan. It takes all memory
// once: what grows beyond is a leak, and nothing can become fragmented.
func (s *System) planned(status *protocol.Status) []Finding {
	var parts []string
	var over []Finding
	for _, m := range status.Memory {
		parts = append(parts, fmt.Sprintf("%s %s of %s", m.Kind, gib(m.Used), gib(m.Planned)))
		if m.Used <= m.Planned+slack {
			continue
		}
		found := fmt.Sprintf("%s takes %s, planned were %s", m.Kind, gib(m.Used), gib(m.Planned))
		next := "watch it with reel-generator vram --watch; where it grows on, report that with its output and the log"
		if m.Kind == protocol.MemoryOther {
			next = "see nvidia-smi for other programs on the GPU; where there are none and it grows on: " + next
		}
		over = append(over, Finding{"vram", Warning, found, next})
	}
	if len(over) > 0 {
		return over
	}
	return []Finding{{"vram", OK, "as planned: " + strings.Join(parts, ", "), ""}}
}

// groupOf is the name of the group that a file belongs to, or empty.
func (s *System) groupOf(info os.FileInfo) string {
	gid, ok := groupID(info)
	if !ok {
		return ""
	}
	for _, g := range s.database("etc/group") {
		if len(g) > 2 && g[2] == gid {
			return g[0]
		}
	}
	return ""
}
