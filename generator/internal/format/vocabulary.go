package format

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// version is that of the messages, of the memory's layout, and of all in reel-format that decides a mask. Both programs
// have it. Raise it in both if one of these changes.
const version = 3

// libraries is the digest of format/Cargo.lock, which fixes the libraries that decide masks: FNV-1a, as the test says.
const libraries = 0xad8c0053

// Version identifies all code that decides masks: a program of another one is refused.
func Version() string { return fmt.Sprintf("%d %08x", version, uint32(libraries)) }

// never is the length of a token that no format draws.
const never = ^uint32(0)

// Vocabulary is what formats need of a tokenizer and its model.
type Vocabulary struct {
	Tokens int // rows of the model: masks have a bit for each
	// Bytes returns the bytes that a token adds to a text. It returns false for a control token, and for an id without
	// a token: no format draws these.
	Bytes func(id int32) (string, bool)
	EOS   []int32
}

// words returns the words of a mask.
func (v Vocabulary) words() int { return (v.Tokens + 31) / 32 }

// drawable returns a mask of the tokens that some format may draw.
func (v Vocabulary) drawable() []uint32 {
	mask := make([]uint32, v.words())
	for id := range int32(v.Tokens) {
		if _, ok := v.Bytes(id); ok {
			mask[id/32] |= 1 << (id % 32)
		}
	}
	for _, id := range v.eos() {
		mask[id/32] |= 1 << (id % 32)
	}
	return mask
}

// eos returns the EOS ids that the model has.
func (v Vocabulary) eos() (ids []int32) {
	for _, id := range v.EOS {
		if id >= 0 && int(id) < v.Tokens {
			ids = append(ids, id)
		}
	}
	return ids
}

// write returns the vocabulary as reel-format reads it: the words {version, tokens, EOS ids}, the EOS ids, the
// length of each token, then the bytes of all tokens.
func (v Vocabulary) write() []byte {
	eos := v.eos()
	isEOS := map[int32]bool{}
	head := []uint32{version, uint32(v.Tokens), uint32(len(eos))}
	for _, id := range eos {
		head, isEOS[id] = append(head, uint32(id)), true
	}
	var text []byte
	for id := range int32(v.Tokens) {
		bytes, ok := v.Bytes(id)
		if !ok || isEOS[id] {
			head = append(head, never)
			continue
		}
		head, text = append(head, uint32(len(bytes))), append(text, bytes...)
	}
	out := make([]byte, 0, 4*len(head)+len(text))
	for _, word := range head {
		out = binary.NativeEndian.AppendUint32(out, word)
	}
	return append(out, text...)
}

// sealed is memory that two processes share. Its size cannot change, so neither can make the other fault.
type sealed struct {
	file  int // its descriptor
	bytes []byte
}

// share returns shared memory of a size.
func share(name string, size int) (s sealed, err error) {
	if s.file, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return s, fmt.Errorf("shared memory: %w", err)
	}
	err = unix.Ftruncate(s.file, int64(size))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(s.file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		s.bytes, err = unix.Mmap(s.file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(s.file)
		return s, fmt.Errorf("shared memory of %d bytes: %w", size, err)
	}
	return s, nil
}

// closeFile closes the descriptor; the memory stays.
func (s sealed) closeFile() { _ = unix.Close(s.file) }

// unmap gives the memory back.
func (s sealed) unmap() { _ = unix.Munmap(s.bytes) }
