package plan

import "reel.internal/reel/kernels/device"

// meter is a device memory that counts bytes and allocates nothing.
type meter struct {
	device.Memory
	block int64 // bytes that the driver allocates at a time
	large int64 // bytes of allocations of at least half a block, each rounded up to blocks
	small int64 // bytes of all others, which share blocks
	page  int64 // bytes of a KV page
}

// rounded returns the bytes that an allocation adds to large and to small.
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

// taken returns the bytes that all allocations take.
func (m *meter) taken() int64 { return m.large + (m.small+m.block-1)/m.block*m.block }

// Alloc counts bytes.
func (m *meter) Alloc(bytes int64) (device.Buffer, error) {
	m.add(bytes)
	return device.NewBuffer(1, 1, bytes), nil
}

// Uncleared counts bytes.
func (m *meter) Uncleared(bytes int64) (device.Buffer, error) { return m.Alloc(bytes) }

// Load counts the bytes of data.
func (m *meter) Load(data []byte) (device.Buffer, error) { return m.Alloc(int64(len(data))) }

// Pinned counts nothing, because pinned memory is the host's.
func (m *meter) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	return device.NewBuffer(1, 1, bytes), nil, nil
}
