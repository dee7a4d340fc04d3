package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"
)

// A page's file is little-endian:
//
//	offset  bytes
//	0       8   magic
//	8       4   version
//	12      4   s: bytes of the scope
//	16      4   t: tokens
//	20      4   zero
//	24      8   d: bytes of keys and values
//	32      8   user
//	40      32  identity
//	72      32  digest of the parent, or of the scope's root
//	104     s   scope
//	        4t  tokens, int32
//	        d   keys and values
//	        8   XXH64 of all bytes before
//
// XXH64 finds damage, of which it misses one in 2^64. It does not stop a forger; the package comment says why none
// is expected.
const (
	magic    = "REELPAGE"
	version  = 1 // of this form; files of other versions are not read
	fixed    = 104
	sumBytes = 8
	maxScope = 256  // bytes
	block    = 4096 // bytes; sizes are rounded up to it
)

// maxPageTokens bounds a page's tokens, so that a head is small.
const maxPageTokens = 1024

// fileMode lets nobody but the owner read what users asked.
const fileMode = 0o600

// errForeign means that a file is of another identity or version.
var errForeign = errors.New("of another identity or version")

func headBytes(scope string, tokens int) int { return fixed + len(scope) + 4*tokens }

// fileBytes returns the size of a page's file as it counts to the bound.
func (s *Store) fileBytes(scope string) int64 { return roundUp(s.exactBytes(scope)) }

func (s *Store) exactBytes(scope string) int64 {
	return int64(headBytes(scope, s.PageTokens)) + s.PageBytes + sumBytes
}

func roundUp(n int64) int64 { return (n + block - 1) / block * block }

// head returns the bytes before a page's keys and values.
func (s *Store) head(p Page) []byte {
	parent := p.Parent
	if parent == (ID{}) {
		parent = s.rootOf(p.Scope)
	}
	b := make([]byte, 0, headBytes(p.Scope, len(p.Tokens)))
	b = append(b, magic...)
	for _, n := range []int{version, len(p.Scope), len(p.Tokens), 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(s.PageBytes))
	b = binary.LittleEndian.AppendUint64(b, p.User)
	b = append(b, s.Identity[:]...)
	b = append(b, parent[:]...)
	b = append(b, p.Scope...)
	for _, t := range p.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// parseHead reads the head of the file of that name and size. The name is the digest of parent and tokens, so a
// change of either shows. Errors: [ErrDamaged], or errForeign, of another identity with the user in p.
func (s *Store) parseHead(name ID, b []byte, size int64) (p Page, err error) {
	if len(b) < fixed || string(b[:len(magic)]) != magic {
		return p, ErrDamaged
	}
	word := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	if word(8) == 0 {
		return p, ErrDamaged
	}
	if word(8) != version {
		return p, errForeign
	}
	scope := word(12)
	if scope > maxScope || len(b) < fixed+scope {
		return p, ErrDamaged
	}
	p.Scope, p.User = string(b[fixed:fixed+scope]), binary.LittleEndian.Uint64(b[32:])
	if !bytes.Equal(b[40:72], s.Identity[:]) {
		return p, errForeign
	}
	if word(16) != s.PageTokens || word(20) != 0 || binary.LittleEndian.Uint64(b[24:]) != uint64(s.PageBytes) ||
		size != s.exactBytes(p.Scope) || len(b) < headBytes(p.Scope, s.PageTokens) {
		return p, ErrDamaged
	}
	for at := fixed + scope; len(p.Tokens) < s.PageTokens; at += 4 {
		p.Tokens = append(p.Tokens, int32(word(at)))
	}
	parent := ID(b[72:104])
	if p.ID = digest(parent, p.Tokens); p.ID != name {
		return p, ErrDamaged
	}
	if parent != s.rootOf(p.Scope) {
		p.Parent = parent
	}
	return p, nil
}

// writeFile writes a page under its temporary name.
func (s *Store) writeFile(p Page, data []byte, name string) (err error) {
	if err := s.root.MkdirAll(folderOf(p.ID), dirMode); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := s.head(p)
	for _, part := range [][]byte{head, data, binary.LittleEndian.AppendUint64(nil, checksum(head, data))} {
		if _, err := s.write(f, part); err != nil {
			return err
		}
	}
	return nil
}

// open opens a file for reading, without waiting if it is a pipe by now.
func (s *Store) open(id ID) (f *os.File, size int64, err error) {
	f, err = s.root.OpenFile(pathOf(id), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrDamaged
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// readFile reads and checks a whole file. Errors: [ErrDamaged] or the system's.
func (s *Store) readFile(id ID, data []byte) error {
	f, size, err := s.open(id)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.check(id, s.reader(f), size, data)
}

// check reads a file of that name and size into data, and compares its head with the name and its checksum with
// everything.
func (s *Store) check(id ID, file io.ReaderAt, size int64, data []byte) error {
	length := size - s.PageBytes - sumBytes
	if length < fixed || length > maxHead {
		return ErrDamaged
	}
	head, want := make([]byte, length), make([]byte, sumBytes)
	for _, part := range []struct {
		bytes []byte
		at    int64
	}{{head, 0}, {data, length}, {want, size - sumBytes}} {
		_, err := file.ReadAt(part.bytes, part.at)
		if errors.Is(err, io.EOF) { // the file was cut meanwhile
			err = ErrDamaged
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.parseHead(id, head, size); err != nil || checksum(head, data) != binary.LittleEndian.Uint64(want) {
		return ErrDamaged
	}
	return nil
}

func checksum(head, data []byte) uint64 {
	sum := xxhash.New()
	_, _ = sum.Write(head) // never fails
	_, _ = sum.Write(data)
	return sum.Sum64()
}
