//go:build cuda

package cuda

// Capability is the GPU's compute capability: 9, 0 for Hopper.
func (q *Queue) Capability() (major, minor int) { return q.s.d.capacity[0], q.s.d.capacity[1] }
