package doctor

import (
	"context"
	"fmt"
	"strings"
)

// numbers returns the indices of the GPUs that share the model.
func (s *System) numbers() []int {
	if len(s.GPUs) == 0 {
		return []int{0}
	}
	return s.GPUs
}

// used returns those of list that share the model.
func (s *System) used(list []card) (all []card) {
	for _, number := range s.numbers() {
		for _, c := range list {
			if c.index == number {
				all = append(all, c)
			}
		}
	}
	return all
}

// uneven is the share of a GPU's free memory that it may have more than another one before doctor says so.
const uneven = 16

// together checks that several GPUs can share a model: that all are there, that each can address the memory of the
// others, and that they have as much of it.
func (s *System) together(ctx context.Context, list []card) (all []Finding) {
	if len(s.numbers()) == 1 || s.onHost(list) || len(list) == 0 {
		return nil
	}
	least := s.card(list)
	if least == nil {
		return []Finding{failure("gpus", fmt.Sprintf("nvidia-smi shows %d of the %d GPUs of --gpus", len(s.used(list)),
			len(s.numbers())), "name GPUs that nvidia-smi -L lists")}
	}
	all = append(all, s.shared(ctx)...)
	for _, c := range s.used(list) {
		more, free := (c.total-c.used)-(least.total-least.used), c.total-c.used
		if more > free/uneven {
			found := fmt.Sprintf("GPU %d has %s free and GPU %d %s: each takes what the smaller one has room for", c.index,
				size(free), least.index, size(least.total-least.used))
			all = append(all, warning("gpus", found,
				"end other programs on GPU "+fmt.Sprint(least.index)+", or take GPUs of one size"))
		}
	}
	if s.GPULink == "host" {
		return append(all, warning("gpus", "what the GPUs exchange goes through the machine's memory, as --gpu-link host says",
			"leave --gpu-link out if they can address each other's memory: it is several times faster"))
	}
	all = append(all, s.peers(ctx)...)
	if len(all) == 0 {
		all = append(all, ok("gpus", fmt.Sprintf("%d GPUs address each other's memory", len(s.numbers()))))
	}
	return all
}

// shared names the programs that compute on one of the GPUs: each waits in every layer for the slowest.
func (s *System) shared(ctx context.Context) (all []Finding) {
	for _, number := range s.numbers() {
		if programs := s.otherPrograms(ctx, fmt.Sprint(number)); programs != "" {
			all = append(all, warning("gpus", fmt.Sprintf("GPU %d also computes for %s, and the others wait for it", number,
				programs), "end those programs, or take GPUs that nobody else uses"))
		}
	}
	return all
}

// peers checks, by nvidia-smi, that the GPUs can write to each other's memory.
func (s *System) peers(ctx context.Context) (all []Finding) {
	out, err := s.Run(ctx, "nvidia-smi", "topo", "-p2p", "w")
	if err != nil {
		return nil // an old driver: the start will say
	}
	access := peerAccess(out)
	for _, from := range s.numbers() {
		for _, to := range s.numbers() {
			if state, known := access[[2]int{from, to}]; known && from != to && state != "OK" {
				found := fmt.Sprintf("GPU %d cannot write to the memory of GPU %d (%s)", from, to, state)
				level := warning
				if s.GPULink == "peer" {
					level = failure
				} else {
					found += ": what they exchange goes through the machine's memory, several times slower"
				}
				all = append(all, level("gpus", found, "take GPUs that nvidia-smi topo -p2p w shows as OK; in a virtual "+
					"machine, ask its operator for peer access"))
			}
		}
	}
	return all
}

// peerAccess reads the table of nvidia-smi topo -p2p: a row and a column for each GPU.
func peerAccess(table string) map[[2]int]string {
	access := map[[2]int]string{}
	var columns []int
	for line := range strings.Lines(table) {
		cells := strings.Fields(line)
		var number int
		if len(cells) < 2 || !gpuNumber(cells[0], &number) {
			continue
		}
		if columns == nil {
			for _, cell := range cells {
				var n int
				if !gpuNumber(cell, &n) {
					break
				}
				columns = append(columns, n)
			}
			continue
		}
		for i, to := range columns {
			if i+1 < len(cells) {
				access[[2]int{number, to}] = cells[i+1]
			}
		}
	}
	return access
}

// gpuNumber reads a name such as GPU0.
func gpuNumber(cell string, to *int) bool {
	n, err := fmt.Sscanf(cell, "GPU%d", to)
	return n == 1 && err == nil
}
