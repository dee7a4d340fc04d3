package device

// NewBuffer makes the handle of a whole allocation. It is for implementations of a
// device, which choose the numbers device and id; id is above 0.
func NewBuffer(device, id uint32, bytes int64) Buffer {
	return Buffer{device: device, id: id, bytes: bytes}
}

// Handle returns the numbers given to NewBuffer and the offset in bytes of the part
// that b names.
func (b Buffer) Handle() (device, id uint32, offset int64) { return b.device, b.id, b.offset }

// Memory returns the memory without a trace. It is for implementations of a device.
func (m *Mapped) Memory() []byte { return m.data }

// NewMapped makes a Mapped of an implementation's pinned memory. trace, which may be
// nil, is called at each [Mapped.Bytes].
func NewMapped(data []byte, trace func(Call)) *Mapped { return &Mapped{data: data, trace: trace} }
