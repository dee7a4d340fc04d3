package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/engine"
)

// The states of a reply, as reel-format numbers them.
const (
	stateBegun   = 1 + iota // with a descriptor of the process
	stateMask               // in the shared memory; with drafts, masks after each of them follow there
	stateEnded              // the text is complete and nothing may follow
	stateRefused            // the format cannot be followed; a text says why
	stateFailed             // a text says why
	stateSlow               // a limit of time was over
)

const replyBytes = 4 << 10 // more than the longest reply

// Sequence follows the format of one request. It is an [engine.Format].
type Sequence struct {
	conn     *net.UnixConn
	memory   sealed
	shared   []uint32 // the masks in memory, which the other process writes
	drawable []uint32
	words    []uint32 // the engine's copy, with room for as many masks as came at once so far
	drafts   []int32  // the engine's
	message  []byte
	limit    time.Duration
	pid      *os.File // the process; nil before it has begun
	first    engine.Mask
	closed   func()
	reply    []byte

	receives bool // a goroutine runs receive, which gives the memory back
	mu       sync.Mutex
	done     func(engine.Mask) // of the mask that is awaited; nil: none is
	most     int               // drafts that it may have
	ended    bool              // Close was called
}

var _ engine.Format = (*Sequence)(nil)

// sequence asks a process to fork for a format, which may draw some control tokens.
func (s *Service) sequence(p *process, kind kind, text string, control ...int32) (q *Sequence, err error) {
	own, other, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	masks := (1 + engine.MaxDrafts) * len(s.drawable)
	memory, err := share("reel-format", 4*masks+len(text))
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	defer memory.closeFile()
	copy(memory.bytes[4*masks:], text)
	message := binary.NativeEndian.AppendUint32(nil, uint32(kind))
	message = binary.NativeEndian.AppendUint32(message, uint32(len(text)))
	_ = p.control.SetWriteDeadline(time.Now().Add(s.limits.fork))
	if _, _, err := p.control.WriteMsgUnix(message, unix.UnixRights(int(other.Fd()), memory.file), nil); err != nil {
		memory.unmap()
		return nil, errors.Join(fmt.Errorf("%s does not listen: %w", Program, err), own.Close())
	}
	return &Sequence{
		conn: own, memory: memory, shared: unsafe.Slice((*uint32)(unsafe.Pointer(&memory.bytes[0])), masks),
		drawable: with(s.drawable, control), limit: s.limits.mask,
		closed: func() {}, reply: make([]byte, replyBytes),
	}, nil
}

// awaitFork waits for the process of the format. An error of the protocol says why it cannot begin.
func (q *Sequence) awaitFork(limit time.Duration) error {
	_ = q.conn.SetReadDeadline(time.Now().Add(limit))
	rights := make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := q.conn.ReadMsgUnix(q.reply, rights)
	if err != nil {
		return err
	}
	files := passed(rights[:m])
	switch state, rest := parse(q.reply[:n]); {
	case state == stateBegun && len(files) == 1:
		q.pid = os.NewFile(uintptr(files[0]), "format")
		return nil
	case state == stateFailed:
		err = failed(textOfReply(rest))
	default:
		err = errors.New("it does not begin")
	}
	for _, d := range files {
		_ = unix.Close(d)
	}
	return err
}

// passed returns the descriptors that came with a message.
func passed(rights []byte) (files []int) {
	messages, _ := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		more, _ := unix.ParseUnixRights(&m)
		files = append(files, more...)
	}
	return files
}

// awaitCompile waits for the first mask, and begins to wait for others.
func (q *Sequence) awaitCompile(limit time.Duration) error {
	_ = q.conn.SetReadDeadline(time.Now().Add(limit))
	n, err := q.conn.Read(q.reply)
	switch state, rest := parse(q.reply[:n]); {
	case errors.Is(err, os.ErrDeadlineExceeded) || state == stateSlow:
		return refused("it takes more than 2 s to compile")
	case err != nil || n == 0:
		return refused("its process ended while it was compiled: it took more than 512 MiB of memory, or was killed")
	case state == stateRefused:
		return refused(textOfReply(rest))
	default:
		q.first = q.mask(state, rest, 0)
	}
	if q.first.Err != nil {
		return q.first.Err
	}
	q.receives = true
	go q.receive()
	return nil
}

// parse returns the state of a reply and what follows it; 0 is no state.
func parse(reply []byte) (state uint32, rest []byte) {
	if len(reply) < 4 {
		return 0, nil
	}
	return binary.NativeEndian.Uint32(reply), reply[4:]
}

// textOfReply returns the text that follows a state.
func textOfReply(rest []byte) string {
	return strings.ToValidUTF8(strings.TrimRight(string(rest), " "), "?")
}

// mask returns what a reply says, which may have some drafts.
func (q *Sequence) mask(state uint32, rest []byte, most int) engine.Mask {
	text := textOfReply(rest)
	switch state {
	case stateMask:
		if len(rest) > 4*most {
			text = fmt.Sprintf("%s sent %d drafts", Program, len(rest)/4)
			break
		}
		if q.copyMasks(rest); len(q.words) > 0 {
			return engine.Mask{Words: q.words, Drafts: q.drafts}
		}
		text = "no token may follow"
	case stateEnded:
		return engine.Mask{Ended: true}
	case stateSlow:
		text = "a mask took more than 1 s"
	case stateFailed:
	default:
		text = fmt.Sprintf("%s sent a reply of state %d", Program, state)
	}
	return engine.Mask{Err: failed(text)}
}

// copyMasks copies drafts, and the shared masks before and after them, which the other process might change, without
// the tokens that no format may draw. It ends before a mask without a token: there is none in words if it is the first.
func (q *Sequence) copyMasks(drafts []byte) {
	n := len(q.drawable)
	q.words, q.drafts = q.words[:0], q.drafts[:0]
	for i := 0; ; i++ {
		if cap(q.words) < (i+1)*n {
			q.words = slices.Grow(q.words, n)
		}
		q.words = q.words[:(i+1)*n]
		if !intersect(q.words[i*n:], q.shared[i*n:][:n], q.drawable) {
			q.words, q.drafts = q.words[:i*n], q.drafts[:max(0, i-1)]
			return
		}
		if len(drafts) < 4 {
			return
		}
		q.drafts = append(q.drafts, int32(binary.NativeEndian.Uint32(drafts)))
		drafts = drafts[4:]
	}
}

// intersect sets mask to the tokens that both a and b allow, and reports whether there are any. All have the same
// length. It reads each word once, two at a time: of 128,000 tokens in 1 us instead of 9.
func intersect(mask, a, b []uint32) bool {
	any := uint64(0)
	wide := pairs(mask)
	wideA, wideB := pairs(a)[:len(wide)], pairs(b)[:len(wide)]
	for i := range wide {
		both := wideA[i] & wideB[i]
		wide[i] = both
		any |= both
	}
	if last := len(mask) - 1; last%2 == 0 {
		mask[last] = a[last] & b[last]
		any |= uint64(mask[last])
	}
	return any != 0
}

// pairs returns the pairs of words, which need no alignment on the processors that the generator runs on.
func pairs(words []uint32) []uint64 {
	if len(words) < 2 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&words[0])), len(words)/2)
}

// Next asks for the mask after some tokens; see [engine.Format].
func (q *Sequence) Next(drawn []int32, drafts int, done func(engine.Mask)) {
	if len(drawn) == 0 {
		go done(q.first)
		return
	}
	q.message = binary.NativeEndian.AppendUint32(q.message[:0], uint32(drafts))
	for _, token := range drawn {
		q.message = binary.NativeEndian.AppendUint32(q.message, uint32(token))
	}
	q.mu.Lock()
	q.done, q.most = done, drafts
	_ = q.conn.SetDeadline(time.Now().Add(q.limit))
	q.mu.Unlock()
	if _, err := q.conn.Write(q.message); err != nil {
		go q.answer(engine.Mask{Err: failed(errEnded)})
	}
}

const errEnded = "its process has ended: it took more than 512 MiB of memory, or was killed"

// receive hands replies to the engine until the connection ends.
func (q *Sequence) receive() {
	defer q.memory.unmap()
	for {
		n, err := q.conn.Read(q.reply)
		waits, most := q.stopClock()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !waits:
			continue // the clock was stopped too late
		case errors.Is(err, os.ErrDeadlineExceeded):
			q.fail("its process does not answer")
			return
		case err != nil || n == 0 || !waits: // nothing is sent unasked
			q.fail(errEnded)
			return
		}
		state, rest := parse(q.reply[:n])
		q.answer(q.mask(state, rest, most))
	}
}

// fail ends the process and the connection, so that a later call of Next fails at once.
func (q *Sequence) fail(cause string) {
	q.kill()
	_ = q.conn.Close()
	q.answer(engine.Mask{Err: failed(cause)})
}

// stopClock stops the time of the mask that is awaited, and returns the most drafts that it may have. It returns false
// if none is.
func (q *Sequence) stopClock() (waits bool, most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = q.conn.SetDeadline(time.Time{})
	return q.done != nil, q.most
}

// answer calls the function of the mask that is awaited, unless Close was called.
func (q *Sequence) answer(m engine.Mask) {
	q.mu.Lock()
	done := q.done
	q.done = nil
	ended := q.ended
	q.mu.Unlock()
	if done != nil && !ended {
		done(m)
	}
}

// kill ends the process.
func (q *Sequence) kill() {
	if q.pid == nil {
		return
	}
	if c, err := q.pid.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}

// Close ends the process; see [engine.Format].
func (q *Sequence) Close() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.kill()
	_ = q.conn.Close()
	if q.pid != nil {
		_ = q.pid.Close()
	}
	if !q.receives {
		q.memory.unmap()
	}
	q.closed()
}
