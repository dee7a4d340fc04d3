package device

// NewBuffer makes the handle of a whole allocation, for an implementation of a
// device: device and id are the implementation's own numbers, id above 0.
func NewBuffer(device, id uint32, bytes int64) Buffer {
	return Buffer{device: device, id: id, bytes: bytes}
}

// Handle is what an implementation of a device put into a Buffer, and the
// offset of the part that it names.
func (b Buffer) Handle() (device, id uint32, offset int64) { return b.device, b.id, b.offset }

// NewMapped is pinned memory of an implementation. trace, which may be nil, sees
// each time the host looks at it.
func NewMapped(data []byte, trace func(Call)) *Mapped { return &Mapped{data: data, trace: trace} }
