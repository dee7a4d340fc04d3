package plan

import "reel/kernels/device"

// meter is a device's memory that only counts.
type meter struct {
	device.Memory
	block int64
	large int64 // allocations of at least half a block, each rounded to blocks
	small int64 // all others
	page  int64 // bytes of a KV page
}

func (m *meter) rounded(bytes int64) (large, small int64) {
	if 2*bytes >= m.block {
		return (bytes + m.block - 1) / m.block * m.block, 0
	}
	const alignment = 512
	return 0, (bytes + alignment - 1) / alignment * alignment
}

func (m *meter) add(bytes int64) {
	large, small := m.rounded(bytes)
	m.large, m.small = m.large+large, m.small+small
}

func (m *meter) remove(bytes int64) {
	large, small := m.rounded(bytes)
	m.large, m.small = m.large-large, m.small-small
}

// taken is what all of it takes.
func (m *meter) taken() int64 { return m.large + (m.small+m.block-1)/m.block*m.block }

// Alloc counts.
func (m *meter) Alloc(bytes int64) (device.Buffer, error) {
	m.add(bytes)
	return device.NewBuffer(1, 1, bytes), nil
}

// Uncleared counts.
func (m *meter) Uncleared(bytes int64) (device.Buffer, error) { return m.Alloc(bytes) }

// Load counts.
func (m *meter) Load(data []byte) (device.Buffer, error) { return m.Alloc(int64(len(data))) }

// Pinned counts nothing: it is the host's memory.
func (m *meter) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	return device.NewBuffer(1, 1, bytes), nil, nil
}
